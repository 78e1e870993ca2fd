"""The c10d backend `neuron` is registered with the device; importing this module makes sure of it."""

from opentrn.device.distributed import register_backend

register_backend()
