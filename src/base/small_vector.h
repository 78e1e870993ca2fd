// A vector of trivially copyable values with a fixed capacity and no allocation.
// Exceeding the capacity throws std::length_error.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <stdexcept>

namespace opentrn {

template <typename T, size_t N>
class SmallVector {
 public:
  SmallVector() = default;
  SmallVector(std::initializer_list<T> values) {
    for (const T& value : values) push_back(value);
  }
  void push_back(const T& value) {
    if (size_ == N) throw std::length_error("SmallVector: capacity exceeded");
    items_[size_++] = value;
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  void resize(size_t size) {
    if (size > N) throw std::length_error("SmallVector: capacity exceeded");
    for (size_t i = size_; i < size; ++i) items_[i] = T{};
    size_ = static_cast<unsigned>(size);
  }
  void erase(size_t index) {
    for (size_t i = index + 1; i < size_; ++i) items_[i - 1] = items_[i];
    --size_;
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return items_[i]; }
  const T& operator[](size_t i) const { return items_[i]; }
  T& back() { return items_[size_ - 1]; }
  const T& back() const { return items_[size_ - 1]; }
  T* begin() { return items_.data(); }
  T* end() { return items_.data() + size_; }
  const T* begin() const { return items_.data(); }
  const T* end() const { return items_.data() + size_; }
  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    if (a.size_ != b.size_) return false;
    for (size_t i = 0; i < a.size_; ++i)
      if (!(a.items_[i] == b.items_[i])) return false;
    return true;
  }

 private:
  std::array<T, N> items_{};
  unsigned size_ = 0;
};

}  // namespace opentrn
