# Writes the text of FROM to TO as a raw string literal.
file(READ ${FROM} text)
string(FIND "${text}" ")page\"" end)
if(NOT end EQUAL -1)
  message(FATAL_ERROR "${FROM} holds the mark that ends the literal")
endif()
file(WRITE ${TO} "R\"page(${text})page\"\n")
