package pseudonym

import (
	"encoding/json"
	"strings"
	"testing"

	"heddle/lab/peer"
)

// Chromium with scripts computes a proof of work and registers once the places of its address are taken. Without scripts the page says to
// wait.
func TestProofOfWork(t *testing.T) {
	w := newWorld(t)
	c := w.chromium()
	// Somebody of the same address takes each place, also the ones that come back every six seconds.
	const crowd = `while :; do curl -sS -o /dev/null --cacert "$0" -d site=news.example "$1"; done`
	if _, err := peer.Start(t.Context(), w.Host("client"), "sh", "-c", crowd, w.cloud.Root(), "https://store."+zone+"/get"); err != nil {
		t.Fatal(err)
	}
	home := "https://store." + zone + "/"
	// A try may get a place just as it comes back.
	const tries = 10
	for try := 1; ; try++ {
		p := c.do(step{Open: home}, step{Register: news, Show: "asked"})["asked"]
		if p.Title == "One moment" {
			if !strings.Contains(p.Text, "runs no scripts") || p.Links["Try again in a minute"] != home+"?site="+news {
				t.Errorf("without scripts: %+v", p)
			}
			break
		}
		if try == tries {
			t.Fatalf("there is always a place: %+v", p)
		}
	}
	if n := w.proved(); n != 0 {
		t.Fatalf("%d proofs before there are scripts", n)
	}
	c.Scripts = true
	for try := 1; w.proved() == 0; try++ {
		p := c.do(step{Open: home}, step{Register: news, Title: "Your pseudonym of", Show: "made"})["made"]
		if len(p.Files) != 2 || p.Links[news] == "" {
			t.Fatalf("with scripts: %+v", p)
		}
		if try == tries {
			t.Fatal("no proof of work was taken")
		}
	}
}

// proved is how many proofs of work the store took.
func (w *world) proved() uint64 {
	w.t.Helper()
	var status struct {
		Running []struct {
			Pseudonym struct {
				Store map[string]uint64 `json:"store"`
			} `json:"pseudonym"`
		} `json:"running"`
	}
	out := w.Run("cloud", "status", "--json")
	if err := json.Unmarshal([]byte(out), &status); err != nil || len(status.Running) != 1 || status.Running[0].Pseudonym.Store == nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	return status.Running[0].Pseudonym.Store["proved"]
}
