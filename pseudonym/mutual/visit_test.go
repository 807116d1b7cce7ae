package mutual

import (
	"strings"
	"testing"

	"heddle/pseudonym"
)

func FuzzCut(f *testing.F) {
	f.Add("a=1&pseudonym=x&&b", "a=1; __Host-pseudonym=x;; b=\"c; d\"")
	f.Fuzz(func(t *testing.T, query, cookies string) {
		if rest, _ := cutQuery(query); strings.HasPrefix(rest, pseudonym.CapabilityKey+"=") || strings.Contains(rest, "&"+pseudonym.CapabilityKey+"=") {
			t.Errorf("%q leaves %q", query, rest)
		}
		rest, found := cutCookies([]string{cookies})
		if again, more := cutCookies([]string{rest}); len(more) > 0 || again != rest {
			t.Errorf("%q leaves %q, and then %q, %q (%q)", cookies, rest, again, more, found)
		}
	})
}
