package carrier

import (
	"bytes"
	"slices"
)

// inScript finds string literals of JavaScript that are random tokens, and data URIs. The text is cut into tokens without a grammar
// (ECMA-262, section 12), so where a regular expression begins is a guess from what is before it. If the guess was wrong, quotes and
// brackets hardly ever match up to the end: then string literals hide nothing.
func inScript(text []byte) []slot {
	l := &lexer{text: text, operand: true}
	for l.at < len(text) && !l.failed {
		l.token()
	}
	slots := uris(text, 0)
	if !l.failed && len(l.open) == 0 {
		slots = append(slots, l.literals...)
	}
	slices.SortFunc(slots, func(a, b slot) int { return a.at - b.at })
	return once(text, slots)
}

// lexer cuts a script into tokens.
type lexer struct {
	text     []byte
	at       int
	operand  bool   // an operand may follow, so that a slash begins a regular expression
	word     string // the last token, if it was a word
	open     []byte // brackets; a template has the bracket '`', and a condition '?'
	literals []slot
	failed   bool
}

// token passes one token, or white space.
func (l *lexer) token() {
	word, b := l.word, l.text[l.at]
	if isBlank(b) {
		l.at++
		return
	}
	if part := l.letters(); part != "" {
		l.operand = slices.Contains(beforeOperands, part) && word != "."
		l.word = part
		return
	}
	l.word = string(b)
	l.at++
	switch b {
	case '"', '\'':
		l.literal(b)
	case '`':
		l.template()
	case '(':
		if slices.Contains(conditions, word) {
			b = '?'
		}
		l.begin(b)
	case '[', '{':
		l.begin(b)
	case ')', ']', '}':
		l.end(b)
	case '/':
		l.slash(word)
	case '+', '-':
		if l.at < len(l.text) && l.text[l.at] == b { // of ++ it is not known on which side its operand is
			l.at++
			return
		}
		l.operand = true
	default:
		l.operand = true
	}
}

// Words before which no division can end.
var (
	beforeOperands = []string{"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "instanceof", "do", "else", "yield", "await"}
	conditions     = []string{"if", "while", "for", "with"}
)

// letters passes a name, a keyword or a number, and returns it.
func (l *lexer) letters() string {
	start := l.at
	for l.at < len(l.text) && (isWord(l.text[l.at]) || l.text[l.at] == '_' || l.text[l.at] == '$' || l.text[l.at] >= 0x80) {
		l.at++
	}
	return string(l.text[start:min(l.at, start+12)]) // no keyword is longer
}

func (l *lexer) begin(bracket byte) {
	l.open = append(l.open, bracket)
	l.operand = true
}

// end passes a bracket that closes.
func (l *lexer) end(bracket byte) {
	if len(l.open) == 0 {
		l.failed = true
		return
	}
	opened := l.open[len(l.open)-1]
	l.open = l.open[:len(l.open)-1]
	// After a block comes a statement; divisions of objects are not worth a thought.
	l.operand = bracket == '}' || opened == '?'
	switch {
	case bracket == '}' && opened == '`':
		l.template()
	case bracket == ')' && opened != '(' && opened != '?', bracket == ']' && opened != '[', bracket == '}' && opened != '{':
		l.failed = true
	}
}

// until passes the text up to one of the characters that end it, and returns which. A backslash hides the character after it.
func (l *lexer) until(ends string) byte {
	for l.at < len(l.text) {
		b := l.text[l.at]
		l.at++
		if bytes.IndexByte([]byte(ends), b) >= 0 {
			return b
		}
		if b == '\\' {
			l.at++
		}
	}
	l.failed = true
	return 0
}

// literal passes a string after its first quote. One with escapes hides nothing.
func (l *lexer) literal(quote byte) {
	start := l.at
	if l.until(string(quote)+"\n\r") != quote {
		l.failed = true
		return
	}
	l.operand = false
	value := l.text[start : l.at-1]
	if bytes.IndexByte(value, '\\') < 0 && !bytes.Contains(value, []byte("data:")) {
		l.literals = append(l.literals, opaque(value, start)...)
	}
}

// template passes the text of a template up to its end or its next expression.
func (l *lexer) template() {
	l.operand = false
	for {
		switch l.until("`$") {
		case '$':
			if l.at < len(l.text) && l.text[l.at] == '{' {
				l.at++
				l.begin('`')
				return
			}
		default:
			return
		}
	}
}

// slash passes a comment, a regular expression or a division.
func (l *lexer) slash(word string) {
	rest := l.text[l.at:]
	switch {
	case bytes.HasPrefix(rest, []byte("/")):
		line := bytes.IndexAny(rest, "\n\r")
		if line < 0 {
			line = len(rest)
		}
		l.at += line
		l.word = word
	case bytes.HasPrefix(rest, []byte("*")):
		size := bytes.Index(rest[1:], []byte("*/"))
		l.failed = size < 0
		l.at += 1 + size + len("*/")
		l.word = word
	case !l.operand:
		l.operand = true
	default:
		for {
			switch end := l.until("/[\n\r"); {
			case end == '[' && l.until("]\n\r") == ']':
				continue
			case end != '/':
				l.failed = true
			}
			break
		}
		l.operand = false
	}
}
