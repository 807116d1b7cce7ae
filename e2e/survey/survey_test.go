package survey

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"heddle/lab/labtest"
	"heddle/lab/peer"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// needScamper skips the test where scamper is not installed.
func needScamper(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("scamper"); err != nil {
		t.Skip(fmt.Errorf("scamper: %w", peer.ErrMissing))
	}
}

// place is an Internet that is up.
type place struct {
	labtest.Overlay
	t *testing.T
}

func newPlace(t *testing.T) place {
	t.Helper()
	return place{labtest.UpOverlay(t, internet()), t}
}

// write makes a file of the client's.
func (p place) write(name, text string) string {
	p.t.Helper()
	file := filepath.Join(p.Home("client"), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// startNode makes a host an overlay node that measures for the client, and gives the client a pass for it.
func (p place) startNode(host, address string) {
	p.t.Helper()
	p.Node(host, "--mode", "survey")
	p.Pass(host, host, netip.MustParseAddr(address), "--mode", "survey", "--to", "192.0.2.0/24")
}

func TestSurveyFindsTheNetworksAndChooseThePairThatNoneSees(t *testing.T) {
	needScamper(t)
	t.Parallel()
	p := newPlace(t)
	p.startNode("tokyo", "198.18.11.10")
	p.startNode("paris", "198.18.12.10")
	p.Run("client", "asn", "import", p.write("networks.csv", networks))
	// oslo has no node that could be asked, and no Ethernet either.
	oslo := p.write("oslo-half.json", p.Run("oslo", "overlay", "trace", "192.0.2.1:443", "--json"))

	paths := []string{"--via", "home=if:home", "--via", "lte=if:lte", "--node", "tokyo", "--node", "paris", "--node", "oslo=198.18.11.14:7443"}
	stop := labtest.Watch(t, p.Instance, "client/home", "client/lte")
	answer := p.Run("client", append([]string{"overlay", "survey", "192.0.2.1:443", "--far", "oslo=" + oslo, "--json"}, paths...)...)
	p.leftByTheRightUplink(stop())

	want := map[string]string{
		"tokyo@home": "[64501 64601 64601 64700]",
		"paris@home": "[64501 64601 64602 64602 64700]",
		"oslo@home":  "[64501 64601 64601 64700]",
		"tokyo@lte":  "[64502 64602 64601 64601 64700]",
		"paris@lte":  "[64502 64602 64602 64700]",
		"oslo@lte":   "[64502 64602 64601 64601 64700]",
	}
	var surveyed struct {
		Paths []struct {
			Name   string
			ASes   []int
			RTT    float64 `json:"rtt_ms"`
			Hidden int
			Why    string
		}
	}
	p.decode(answer, &surveyed)
	for _, w := range surveyed.Paths {
		if got := fmt.Sprint(w.ASes); got != want[w.Name] || w.Why != "" || w.Hidden != 0 || w.RTT <= 0 {
			t.Errorf("%s: %s in %v ms, %d hidden, %q; want %s", w.Name, got, w.RTT, w.Hidden, w.Why, want[w.Name])
		}
		delete(want, w.Name)
	}
	if len(want) > 0 {
		t.Errorf("not surveyed: %v", want)
	}
	p.choices(paths)
}

func (p place) decode(text string, into any) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		p.t.Fatalf("%v: %s", err, text)
	}
}

// choices checks what heddle overlay choose makes of the survey.
func (p place) choices(paths []string) {
	p.t.Helper()
	choose := func(flags ...string) (names, out, talk string, err error) {
		out, talk, err = p.Try("client", "", append(append([]string{"overlay", "choose", "192.0.2.1:443", "--json"}, paths...), flags...)...)
		var chosen struct{ Paths []struct{ Name string } }
		if out != "" {
			p.decode(out, &chosen)
		}
		var list []string
		for _, c := range chosen.Paths {
			list = append(list, c.Name)
		}
		slices.Sort(list)
		return strings.Join(list, " "), out, talk, err
	}
	// No network sees both but the destination's; oslo would do as well, and is slower.
	if names, out, talk, err := choose(); names != "paris@lte tokyo@home" || err != nil || !strings.Contains(out, `"diverse": true`) ||
		!strings.Contains(out, "paris=node:paris@lte") {
		p.t.Errorf("two: %s, %v\n%s%s", names, err, out, talk)
	}
	// Of three, two share a transit: that is said, and is no success unless somebody wants it.
	names, _, talk, err := choose("--paths", "3")
	if names != "oslo@home paris@lte tokyo@home" || err == nil || !strings.Contains(talk, "AS64501 (Home), AS64601 (First Transit)") {
		p.t.Errorf("three: %s, %v\n%s", names, err, talk)
	}
	if _, _, talk, err := choose("--paths", "3", "--degrade"); err != nil {
		p.t.Errorf("three that will do: %v\n%s", err, talk)
	}
	if names, _, talk, err := choose("--avoid-as", "AS64602", "--degrade"); names != "oslo@home tokyo@home" || err != nil {
		p.t.Errorf("without the second transit: %s, %v\n%s", names, err, talk)
	}
	// A survey that is too old does not count.
	if _, _, talk, err := choose("--max-age", "1ns"); err == nil || !strings.Contains(talk, "not surveyed") || !strings.Contains(talk, "heddle overlay survey") {
		p.t.Errorf("too old: %v\n%s", err, talk)
	}
	out, talk, err := p.Try("client", "", "overlay", "choose", "192.0.2.1:443", "--via", "home=if:home", "--node", "tokyo", "--node", "paris")
	if err == nil || !strings.Contains(talk, "all paths pass AS64501 (Home), AS64601 (First Transit)") ||
		!strings.Contains(out, "@home  one      AS64501 (Home), AS64601 (First Transit)") {
		p.t.Errorf("one uplink: %v\n%s%s", err, out, talk)
	}
}

// leftByTheRightUplink checks that each uplink carried nothing but its own packets, and first probes to all nodes.
func (p place) leftByTheRightUplink(seen map[string]iter.Seq2[time.Time, gopacket.Packet]) {
	p.t.Helper()
	own := map[string]string{"client/home": "198.18.1.2", "client/lte": "198.18.2.2"}
	for device, packets := range seen {
		first := map[string]int{} // probes that end at the first router, by destination
		asked := map[string]bool{}
		for _, packet := range packets {
			ip, ok := packet.NetworkLayer().(*layers.IPv4)
			if !ok {
				continue
			}
			if src, dst := ip.SrcIP.String(), ip.DstIP.String(); src != own[device] && dst != own[device] {
				p.t.Errorf("%s carried a packet from %s to %s", device, src, dst)
			}
			if tcp, ok := packet.TransportLayer().(*layers.TCP); ok && ip.TTL == 1 && ip.SrcIP.String() == own[device] && tcp.ACK && !tcp.SYN {
				first[ip.DstIP.String()]++
			} else if ok && ip.SrcIP.String() == own[device] && len(tcp.Payload) > 100 { // TLS, and no probe
				asked[ip.DstIP.String()] = true
			}
		}
		for _, node := range []string{"198.18.11.10", "198.18.12.10", "198.18.11.14"} {
			if first[node] == 0 {
				p.t.Errorf("no probe to %s left by %s: %v", node, device, first)
			}
		}
		if len(asked) != 1 {
			p.t.Errorf("by %s these nodes were asked to measure: %v; each uplink is for one of the two", device, asked)
		}
	}
}

// Probes of one trace keep to one flow: what routers hash to choose among equal links is the same in all of them.
func TestProbesAreOneFlow(t *testing.T) {
	needScamper(t)
	t.Parallel()
	p := newPlace(t)
	stop := labtest.Watch(t, p.Instance, "client/lte")
	began := time.Now()
	out := p.Run("client", "overlay", "trace", "198.18.12.10:7443", "--via", "lte=if:lte")
	if !strings.Contains(out, "reached 198.18.12.10:7443: true") {
		t.Errorf("%s", out)
	}
	flows := map[string]int{}
	for _, packet := range stop()["client/lte"] {
		ip, ok := packet.NetworkLayer().(*layers.IPv4)
		tcp, isTCP := packet.TransportLayer().(*layers.TCP)
		if ok && isTCP && ip.SrcIP.String() == "198.18.2.2" {
			flows[fmt.Sprintf("%v:%d>%v:%d tos %d", ip.SrcIP, tcp.SrcPort, ip.DstIP, tcp.DstPort, ip.TOS)]++
		}
	}
	if len(flows) != 1 {
		t.Errorf("%d flows in %v: %v", len(flows), time.Since(began), flows)
	}
}
