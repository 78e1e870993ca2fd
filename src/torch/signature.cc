#include "torch/signature.h"

#include <ATen/core/jit_type.h>

namespace opentrn::bridge {
namespace {

// True when the type is known; `kind` is then filled.
bool classify(const c10::Type& type, Parameter& parameter) {
  using c10::TypeKind;
  switch (type.kind()) {
    case TypeKind::OptionalType: return classify(*type.castRaw<c10::OptionalType>()->getElementType(), parameter);
    case TypeKind::TensorType: parameter.kind = ArgumentKind::tensor; return true;
    case TypeKind::NumberType: parameter.kind = ArgumentKind::number; return true;
    case TypeKind::IntType:
    case TypeKind::SymIntType: parameter.kind = ArgumentKind::integer; return true;
    case TypeKind::MemoryFormatType:
      parameter.kind = ArgumentKind::integer;
      parameter.memory_format = true;
      return true;
    case TypeKind::BoolType: parameter.kind = ArgumentKind::boolean; return true;
    case TypeKind::FloatType:
    case TypeKind::SymFloatType: parameter.kind = ArgumentKind::real; return true;
    case TypeKind::StringType: parameter.kind = ArgumentKind::text; return true;
    case TypeKind::ScalarTypeType: parameter.kind = ArgumentKind::dtype; return true;
    case TypeKind::DeviceObjType: parameter.kind = ArgumentKind::device; return true;
    case TypeKind::GeneratorType: parameter.kind = ArgumentKind::generator; return true;
    case TypeKind::LayoutType: parameter.kind = ArgumentKind::ignored; return true;
    case TypeKind::ListType: {
      Parameter element;
      if (!classify(*type.castRaw<c10::ListType>()->getElementType(), element)) return false;
      switch (element.kind) {
        case ArgumentKind::tensor: parameter.kind = ArgumentKind::tensors; return true;
        case ArgumentKind::number: parameter.kind = ArgumentKind::numbers; return true;
        case ArgumentKind::integer:
        case ArgumentKind::boolean: parameter.kind = ArgumentKind::integers; return true;
        case ArgumentKind::real: parameter.kind = ArgumentKind::reals; return true;
        default: return false;
      }
    }
    default: return false;
  }
}

}  // namespace

bool Signature::read(const c10::FunctionSchema& schema, Signature& signature, std::string& problem) {
  for (const c10::Argument& argument : schema.arguments()) {
    Parameter parameter;
    parameter.name = argument.name();
    // real_type keeps ScalarType, Layout and MemoryFormat apart from int.
    if (!classify(*argument.real_type(), parameter)) {
      problem = "argument " + argument.name() + " of type " + argument.real_type()->str();
      return false;
    }
    parameter.written = argument.alias_info() && argument.alias_info()->isWrite();
    parameter.keyword_only = argument.kwarg_only();
    if (parameter.kind == ArgumentKind::boolean && parameter.name == "pin_memory")
      parameter.kind = ArgumentKind::ignored;
    signature.writes |= parameter.written;
    signature.parameters.push_back(std::move(parameter));
  }
  signature.returns = static_cast<int>(schema.returns().size());
  return true;
}

}  // namespace opentrn::bridge
