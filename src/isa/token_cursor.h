// Reads the tokens of a program's text one after the other: what every part of the parser needs.
// All functions that expect something throw UserError with line, column, what was expected and what was found.
#pragma once

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/dtype.h"
#include "isa/lexer.h"

namespace opentrn::isa {

class TokenCursor {
 public:
  explicit TokenCursor(std::string_view text) : tokens_(tokenize(text)) {}

  // Behind the last token stands its `end`, any number of times.
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(position_ + ahead, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[std::min(position_++, tokens_.size() - 1)]; }

  bool at(Token::Kind kind) const { return peek().kind == kind; }
  bool at(std::string_view punctuation) const {
    return peek().kind == Token::Kind::punctuation && peek().text == punctuation;
  }
  bool at_word(std::string_view text) const { return peek().kind == Token::Kind::word && peek().text == text; }
  bool accept(std::string_view punctuation);
  bool accept_word(std::string_view text);
  void skip_newlines();

  [[noreturn]] static void unexpected(const Token& token, const std::string& expected);
  void expect(std::string_view punctuation);
  void keyword(std::string_view text);
  const Token& word(const std::string& expected);
  // Nothing more on this line; a closing brace may follow.
  void end_of_line(const std::string& expected = "the end of the line");
  void open_block();  // {

  std::string name(const std::string& expected);  // a word or a quoted string
  DType dtype(const std::string& expected);
  static std::optional<DType> dtype_named(const Token& token);
  double real(const std::string& expected);  // signed; inf and nan too

  template <typename T>
  T integer(const std::string& expected) {
    const Token& start = peek();
    const std::string digits = signed_digits(expected);
    T value{};
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc::result_out_of_range)
      fail_at(start, fmt::format("{} is out of range for {} ({} to {})", digits, expected,
                                 static_cast<int64_t>(std::numeric_limits<T>::min()),
                                 static_cast<int64_t>(std::numeric_limits<T>::max())));
    if (error != std::errc() || end != digits.data() + digits.size()) unexpected(start, expected);
    return value;
  }

  // `i3`, `t0`, `r12`: the number of a register of the given letter.
  template <typename T>
  T reg(char letter, const std::string& what) {
    const Token& token = peek();
    const std::string expected = fmt::format("{} such as {}0", what, letter);
    if (token.kind != Token::Kind::word || token.text.size() < 2 || token.text[0] != letter)
      unexpected(token, expected);
    T value{};
    const char* last = token.text.data() + token.text.size();
    const auto [end, error] = std::from_chars(token.text.data() + 1, last, value);
    if (error != std::errc() || end != last) unexpected(token, expected);
    next();
    return value;
  }

 private:
  std::string signed_digits(const std::string& expected);

  std::vector<Token> tokens_;
  size_t position_ = 0;
};

}  // namespace opentrn::isa
