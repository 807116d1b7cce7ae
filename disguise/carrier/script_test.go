package carrier

import (
	"encoding/base64"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

func scripts() []example {
	const kind = "text/javascript"
	token := opaque64(300)
	sourceMap := base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf(`{"version":3,"sources":["a.js"],"names":[],"mappings":"AAAA","debugId":"%x"}`, random(16))))
	literal := func(format string) []byte { return []byte(fmt.Sprintf(format, token)) }
	return []example{
		{kind, "literals", literal(`const a={"k":"%s",b:'` + opaque64(30) + `'};f("plain text")`), 330},
		{kind, "twice", literal(`f("%[1]s");g("%[1]s")`), 0},
		{kind, "escapes", literal(`f("\x41%s")`), 0},
		{kind, "outside of literals", literal(`x=abCD01efGH23ijKL45mnOP67; // "%s"`), 0},
		{kind, "a comment that ends", literal("/* it's */f('%s')"), 300},
		{kind, "between two strings", []byte(`f("a"+abCD01efGH23ijKL45mnOP67qrST+"b")`), 0},
		{kind, "after a regular expression with a quote", literal(`x=/["'/]/g.test(a)?"%s":1`), 300},
		{kind, "after a condition", literal(`if(a(b))/'"/.test(c)&&d("%s")`), 300},
		{kind, "after a division", literal(`x=(a)/2;y=b/'c'.length;z="%s"`), 300},
		{kind, "after a keyword", literal(`function f(){return/"/.test("%s")}`), 300},
		{kind, "after a property", literal(`x=y.return/2;z="%s"`), 300},
		{kind, "in a template's expression", literal("x=`it's ${{a:`${1}`,b:\"%s\"}.b} \" ${2}`"), 300},
		{kind, "in a template's text", literal("x=`a \"%s\" $ b`"), 0},
		{kind, "a string without end", literal(`f("%s"); g("a`), 0},
		{kind, "a bracket that stays open", literal(`f("%s"`), 0},
		{kind, "a bracket too many", literal(`f("%s"))`), 0},
		{kind, "another bracket", literal(`f(["%s")`), 0},
		{kind, "an inline source map", []byte("f()\n//# sourceMappingURL=data:application/json;charset=utf-8;base64," + sourceMap), 16},
		{"text/css", "an inline source map", []byte("a{}\n/*# sourceMappingURL=data:application/json;base64," + sourceMap + " */"), 16},
		{"text/css", "an inline JPEG", []byte("a{background:url(data:image/jpeg;base64," + base64.StdEncoding.EncodeToString(view(16, 60)) + ")}"), photo{}.Capacity(view(16, 60))},
		{"text/css", "an inline font", []byte("a{src:url(data:font/woff2;base64," + base64.StdEncoding.EncodeToString(font(random(90))) + ")}"), 90},
	}
}

// nodeAccepts has node parse a script.
func nodeAccepts(t *testing.T, script []byte) {
	t.Helper()
	needs(t, "node", "nodejs")
	c := exec.Command("node", "--check", "-")
	c.Stdin = strings.NewReader(string(script))
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Paths, names and tables have the characters of tokens, and what they would say looks random.
func TestPathsAreNoTokens(t *testing.T) {
	for _, text := range []string{"images/products/large/blue", "src/components/MyButton/index", "application/vnd/openxmlformats/officedocument",
		"Content+Type+Application", "ISO/IEC/JTC1/SC29/WG11/N0001", "Europe/London/America/New_York", "some-hyphenated-name-of-a-custom-element",
		"this_is_a_constant_with_underscores", "AAAAAAAAAAAA/AAAAAAAAAAAAAAAA", "0123456789abcdef", "fedcba9876543210", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"} {
		for _, kind := range []string{"application/json", "text/javascript"} {
			if n := For(kind).Capacity([]byte(`["` + text + `"]`)); n != 0 {
				t.Errorf("%s: %q hides %d bytes", kind, text, n)
			}
		}
	}
}
