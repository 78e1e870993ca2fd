// Splits the text form of a program into tokens with their line and column.
// Knows words, numbers, quoted strings and punctuation; comments run from # to the end of the line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace opentrn::isa {

struct Token {
  enum class Kind : uint8_t { word, number, string, punctuation, newline, end } kind = Kind::end;
  std::string_view text;  // of the source; a string's text excludes its quotes
  int line = 1, column = 1;
};

// Line ends after a comma, after `<-` and empty lines give no newline token. The last token is `end`.
// Throws UserError for characters that start no token and for strings that are not closed.
std::vector<Token> tokenize(std::string_view text);

// The value of a string token, escapes (\" \\ \xHH) resolved. Throws UserError at a bad escape.
std::string unescape(const Token& token);

// Throws UserError "line L, column C: <message>".
[[noreturn]] void fail_at(const Token& token, const std::string& message);

}  // namespace opentrn::isa
