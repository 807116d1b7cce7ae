package pseudonym

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"heddle/lab/browser"
	"heddle/lab/peer"
)

// What `heddle pseudonym get --nss` writes is all that Chromium needs, for links between sites too.
func TestNSS(t *testing.T) {
	w := newWorld(t)
	u, err := browser.NewUser(t.Context(), t.TempDir())
	if errors.Is(err, peer.ErrMissing) {
		t.Skip("typed skip:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	c := &chromium{w, u}
	dir := filepath.Join(u.Home, ".pki", "nssdb")
	w.awaitLinks() // for which the client has a pseudonym of the news
	made := map[string]registered{}
	for range 2 { // the second time both pseudonyms are there already
		for _, site := range []string{news, shop} {
			p, err := w.cloud.Get(t.Context(), "client", site, "--nss", dir)
			if err != nil {
				t.Fatal(err)
			}
			if old, ok := made[site]; ok && old.Name != p.Name {
				t.Errorf("%s has another pseudonym: %s, %s", site, old.Name, p.Name)
			}
			made[site] = p
		}
	}
	seen := c.do(step{Open: made[news].To("/links.html"), Show: "links"}, step{Click: "to the shop", Show: "led"})
	if !strings.HasPrefix(seen["led"].URL, "https://"+made[shop].Name+"/") || seen["led"].Error != "" {
		t.Errorf("%+v\n%+v", seen["links"], seen["led"])
	}
}
