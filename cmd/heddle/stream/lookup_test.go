package stream

import (
	"slices"
	"testing"

	"heddle/path"
	"heddle/stripe"
)

// kind is a path that is only described.
type kind struct{ name, scheme string }

func (k kind) Describe() path.Info { return path.Info{Name: k.name, Kind: k.scheme} }

func TestWhoSeesTheName(t *testing.T) {
	var all []stripe.Path
	for _, k := range []kind{{"home", "if"}, {"tokyo", "node"}, {"p", "socks5"}, {"hop", "ports"}} {
		all = append(all, stripe.Path{Name: k.name, Path: k})
	}
	const far = "the name x.example is looked up at the far end of tokyo; who runs that sees the name, and the networks before it do not"
	const proxy = "the name x.example is looked up by the proxy of p, which sees the name, as do the networks before the proxy"
	near := func(names string) string {
		return "the name x.example is asked of this machine's nameservers over " + names + "; these networks and the nameservers see the name, and no network sees it that was not chosen"
	}
	const own = "the name x.example is asked of this machine's resolver; it sees the name, and so does the network that its questions take"
	for what, c := range map[string]struct {
		l      *lookup
		kernel bool
		want   []string
	}{
		"by the paths":              {&lookup{}, false, []string{far, proxy, near("home, hop")}},
		"and for a survey":          {&lookup{asked: []string{"lte"}}, false, []string{far, proxy, near("lte, home, hop")}},
		"for the kernel":            {&lookup{asked: []string{"lte"}}, true, []string{near("lte")}},
		"for the kernel, by routes": {&lookup{own: true}, true, []string{own}},
	} {
		if got := c.l.claims("x.example", all, c.kernel); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", what, got)
		}
	}
}
