package stream

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/clitest"
	"heddle/config"
	"heddle/identity"
	"heddle/overlay/client"
	"heddle/overlay/survey"
	"heddle/path"
)

// surveyedNodes makes passes for three nodes, and a survey in which n1 and n2 have a network in common.
func surveyedNodes(t *testing.T) (id identity.Identity, passes []client.Pass) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HEDDLE_HOME", home)
	id, _, err := identity.LoadOrCreate(filepath.Join(home, "identity.pem"))
	if err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(home, "asn.csv")
	var rows strings.Builder
	for i := 1; i <= 20; i++ {
		fmt.Fprintf(&rows, "198.51.100.%d,198.51.100.%d,%d,Network %d\n", i, i, 64500+i, i)
	}
	if err := os.WriteFile(table, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, talk := heddle.Quietly(t, "asn", "import", table); code != cli.ExitOK {
		t.Fatal(talk)
	}
	now := time.Now()
	half := func(to netip.AddrPort, network int, rtt float64) survey.Half {
		hop := survey.Hop{TTL: 1, Addr: netip.AddrFrom4([4]byte{198, 51, 100, byte(network)}), RTT: rtt}
		return survey.Half{To: to, At: now, Method: "tcp-ack", Hops: []survey.Hop{hop, {TTL: 2, Addr: to.Addr(), RTT: rtt}}, Reached: true, RTT: rtt}
	}
	peer := netip.MustParseAddrPort("127.0.0.9:4470")
	halves := map[string]survey.Half{}
	for i, near := range []int{1, 1, 3} {
		node, err := identity.New()
		if err != nil {
			t.Fatal(err)
		}
		signed, err := client.Issue(id, client.Grant{Holder: id.Key(), From: now.Add(-time.Minute), Until: now.Add(time.Hour), Modes: []string{client.ModeForward}})
		if err != nil {
			t.Fatal(err)
		}
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}), 7443)
		p := client.Pass{Name: fmt.Sprintf("n%d", i+1), Key: node.Key(), Addresses: []string{at.String()}, Grant: signed}
		if _, err := p.Save(filepath.Join(home, "nodes")); err != nil {
			t.Fatal(err)
		}
		passes = append(passes, p)
		uplink, err := survey.FindUplink(path.Spec{}, at.Addr())
		if err != nil {
			t.Fatal(err)
		}
		halves[survey.NearKey(survey.Request{To: at, Uplink: uplink})] = half(at, near, float64(10*(i+1)))
		halves[survey.FarKey(p.Key.String(), peer.String())] = half(peer, 11+i, 5)
	}
	cache, err := survey.OpenCache()
	if err != nil {
		t.Fatal(err)
	}
	if err := cache.Add(halves, now); err != nil {
		t.Fatal(err)
	}
	return id, passes
}

func TestDiverseNodesAreChosen(t *testing.T) {
	id, passes := surveyedNodes(t)
	var talk clitest.Spoken
	c := chooser{stripe: config.DefaultStripe(), id: id, talk: &talk}
	c.stripe.To, c.stripe.Paths = "127.0.0.9:4470", 2
	paths, err := c.choose(t.Context(), passes)
	if err != nil || len(paths) != 2 || paths[0].Name+paths[1].Name != "n1n3" {
		t.Fatalf("chosen: %+v, %v\n%s", paths, err, &talk)
	}
	if !strings.Contains(talk.String(), "no network is known to see two of them") {
		t.Errorf("it says %s", &talk)
	}
	c.stripe.Paths = 3
	if _, err := c.choose(t.Context(), passes); err == nil || !strings.Contains(err.Error(), "n1 and n2 by AS64501") {
		t.Errorf("where two share a network: %v", err)
	}
	c.stripe.Pick, c.stripe.Paths = config.PickRandom, 3
	if paths, err := c.choose(t.Context(), passes); err != nil || len(paths) != 3 {
		t.Errorf("at random: %+v, %v", paths, err)
	}
	c.stripe.To, c.stripe.Pick, c.stripe.Paths = "127.0.0.8:1", config.PickDiverse, 2
	if _, err := c.choose(t.Context(), passes); err == nil || !strings.Contains(err.Error(), "0 of 3 answer") {
		t.Errorf("to where nothing is surveyed, and no node answers: %v", err)
	}
}
