#include "isa/token_cursor.h"

namespace opentrn::isa {

using Kind = Token::Kind;

bool TokenCursor::accept(std::string_view punctuation) {
  if (!at(punctuation)) return false;
  ++position_;
  return true;
}

bool TokenCursor::accept_word(std::string_view text) {
  if (!at_word(text)) return false;
  ++position_;
  return true;
}

void TokenCursor::skip_newlines() {
  while (at(Kind::newline)) ++position_;
}

void TokenCursor::unexpected(const Token& token, const std::string& expected) {
  std::string found;
  if (token.kind == Kind::newline)
    found = "the end of the line";
  else if (token.kind == Kind::end)
    found = "the end of the text";
  else
    found = fmt::format("'{}'", token.text);
  fail_at(token, fmt::format("expected {}, found {}", expected, found));
}

void TokenCursor::expect(std::string_view punctuation) {
  if (!accept(punctuation)) unexpected(peek(), fmt::format("'{}'", punctuation));
}

void TokenCursor::keyword(std::string_view text) {
  if (!accept_word(text)) unexpected(peek(), fmt::format("'{}'", text));
}

const Token& TokenCursor::word(const std::string& expected) {
  if (!at(Kind::word)) unexpected(peek(), expected);
  return next();
}

void TokenCursor::end_of_line(const std::string& expected) {
  if (at(Kind::end) || at("}")) return;
  if (!at(Kind::newline)) unexpected(peek(), expected);
  skip_newlines();
}

void TokenCursor::open_block() {
  expect("{");
  skip_newlines();
}

std::string TokenCursor::name(const std::string& expected) {
  if (at(Kind::string)) return unescape(next());
  if (at(Kind::word)) return std::string(next().text);
  unexpected(peek(), expected);
}

std::optional<DType> TokenCursor::dtype_named(const Token& token) {
  if (token.kind != Kind::word) return std::nullopt;
  for (int d = 0; d <= static_cast<int>(DType::c128); ++d)
    if (name_of(static_cast<DType>(d)) == token.text) return static_cast<DType>(d);
  return std::nullopt;
}

DType TokenCursor::dtype(const std::string& expected) {
  const auto type = dtype_named(peek());
  if (!type) unexpected(peek(), expected);
  next();
  return *type;
}

std::string TokenCursor::signed_digits(const std::string& expected) {
  std::string digits;
  if (accept("-"))
    digits = "-";
  else
    accept("+");
  if (!at(Kind::number) && !at_word("inf") && !at_word("nan")) unexpected(peek(), expected);
  return digits += next().text;
}

double TokenCursor::real(const std::string& expected) {
  const Token& start = peek();
  const std::string digits = signed_digits(expected);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range) fail_at(start, fmt::format("{} is not a double", digits));
  if (error != std::errc() || end != digits.data() + digits.size()) unexpected(start, expected);
  return value;
}

}  // namespace opentrn::isa
