#include "isa/lexer.h"

#include <cctype>

#include <fmt/format.h>

#include "base/error.h"

namespace opentrn::isa {
namespace {

bool word_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool word_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void fail_at(const Token& token, const std::string& message) {
  throw UserError(fmt::format("line {}, column {}: {}", token.line, token.column, message));
}

std::string unescape(const Token& token) {
  std::string out;
  for (size_t i = 0; i < token.text.size(); ++i) {
    const char c = token.text[i];
    if (c != '\\') {
      out += c;
      continue;
    }
    const char escape = i + 1 < token.text.size() ? token.text[i + 1] : '\0';
    if (escape == '"' || escape == '\\') {
      out += escape;
      ++i;
    } else if (escape == 'x' && i + 3 < token.text.size() && hex_value(token.text[i + 2]) >= 0 &&
               hex_value(token.text[i + 3]) >= 0) {
      out += static_cast<char>(hex_value(token.text[i + 2]) * 16 + hex_value(token.text[i + 3]));
      i += 3;
    } else {
      fail_at(token, "bad escape in a quoted name; known are \\\", \\\\ and \\xHH");
    }
  }
  return out;
}

std::vector<Token> tokenize(std::string_view text) {
  std::vector<Token> tokens;
  int line = 1;
  size_t line_start = 0, at = 0;
  auto push = [&](Token::Kind kind, size_t from, size_t to) {
    tokens.push_back({kind, text.substr(from, to - from), line, static_cast<int>(from - line_start) + 1});
  };
  while (at < text.size()) {
    const char c = text[at];
    const size_t from = at;
    if (c == '\n') {
      const bool continues = !tokens.empty() && tokens.back().kind == Token::Kind::punctuation &&
                             (tokens.back().text == "," || tokens.back().text == "<-");
      const bool empty = tokens.empty() || tokens.back().kind == Token::Kind::newline;
      if (!continues && !empty) push(Token::Kind::newline, at, at);
      line_start = ++at;
      ++line;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at;
    } else if (c == '#') {
      while (at < text.size() && text[at] != '\n') ++at;
    } else if (c == '"') {
      for (++at; at < text.size() && text[at] != '"' && text[at] != '\n'; ++at)
        if (text[at] == '\\' && at + 1 < text.size() && text[at + 1] != '\n') ++at;
      push(Token::Kind::string, from + 1, at);
      tokens.back().column -= 1;
      if (at >= text.size() || text[at] != '"') fail_at(tokens.back(), "this quoted name has no closing quote");
      ++at;
    } else if (word_start(c)) {
      while (at < text.size() && word_part(text[at])) ++at;
      push(Token::Kind::word, from, at);
    } else if (digit(c)) {
      // A sign belongs to the number only after an exponent's letter: 1e-5, but 4-3 is three tokens.
      const bool hexadecimal = c == '0' && at + 1 < text.size() && (text[at + 1] == 'x' || text[at + 1] == 'X');
      while (at < text.size()) {
        const char d = text[at];
        const char previous = at > from ? text[at - 1] : '\0';
        const bool exponent_sign = (d == '-' || d == '+') && (previous == 'e' || previous == 'E') && !hexadecimal &&
                                   at + 1 < text.size() && digit(text[at + 1]);
        const bool fraction = d == '.' && at + 1 < text.size() && digit(text[at + 1]);
        if (!word_part(d) && !fraction && !exponent_sign) break;
        ++at;
      }
      push(Token::Kind::number, from, at);
    } else {
      const std::string_view two = text.substr(at, 2);
      at += two == "<-" || two == ">=" ? 2 : 1;
      push(Token::Kind::punctuation, from, at);
      if (std::string_view("<>=+-*.,:[]{}$%").find(c) == std::string_view::npos)
        fail_at(tokens.back(), std::isprint(static_cast<unsigned char>(c))
                                   ? fmt::format("unexpected character '{}'", c)
                                   : fmt::format("unexpected byte 0x{:02x}", static_cast<unsigned char>(c)));
    }
  }
  push(Token::Kind::newline, text.size(), text.size());
  push(Token::Kind::end, text.size(), text.size());
  return tokens;
}

}  // namespace opentrn::isa
