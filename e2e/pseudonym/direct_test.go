package pseudonym

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// The site's machine answers from the gateway's address by a link of its own, so that no byte of an answer passes the gateway's machine. Without the rules for
// that the agent takes nothing, and doctor says what to run.
func TestSiteAnswersPastTheGateway(t *testing.T) {
	w, r, agent := movingWorldTo(t, lab.PastCloud(lab.OpenCloud("cloud", "news")), func(w *world) {
		w.handoff = "handoff-direct:"
		w.serveAll()
	}, func(w *world, s peer.Sidecar) []string { return append(w.sidecar(s), "--direct", gateway.String()) })

	file := filepath.Join(t.TempDir(), "agent.toml")
	text := fmt.Sprintf("identity = %q\ngateway-key = \"sha256:%064d\"\nto = \"proxy:127.0.0.1:80\"\ndirect = [%q]\n", w.cloud.Identity(news), 0, gateway)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	doctor := func(want string) {
		t.Helper()
		if out, _, _ := w.Try("news", "", "pseudonym", "doctor", "--agent", file); !strings.Contains(out, want) {
			t.Errorf("doctor does not say %q:\n%s", want, out)
		}
	}
	doctor("ipproto tcp lookup 4444")
	if _, _, err := w.curl(r, r.To("/large.bin"), "-4"); err == nil {
		t.Error("a machine that cannot answer has the connection")
	}
	if err := agent.AwaitLog(t.Context(), "ipproto icmp lookup 4444"); err != nil {
		t.Error(err)
	}

	if err := w.Host("news").AnswerPast(t.Context(), gateway); err != nil {
		t.Fatal(err)
	}
	doctor("takes connections of that address")
	const atGateway, atSite, past, atClient = "isp/cloud", "cloud/news", "isp/past", "isp/client"
	stop := labtest.Watch(t, w.Instance, atGateway, atSite, past, atClient)
	for range 3 {
		if page, status, err := w.curl(r, r.To("/large.bin"), "-4"); err != nil || status != 200 || len(page) != 5<<20 {
			t.Fatalf("%d bytes, %d, %v\n%s", len(page), status, err, agent.Log())
		}
	}
	w.moved(3)
	if out, _, _ := w.Try("cloud", "", "pseudonym", "doctor", w.cloud.File()); !strings.Contains(out, "is a neighbour, and can answer clients itself") {
		t.Errorf("the cloud's doctor says\n%s", out)
	}
	client, answers := w.Host("client").Addrs()[0], map[string]int{}
	for link, all := range stop() {
		for _, p := range all {
			tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
			from, to, size := ends(p)
			switch {
			case ok && link == atClient && to == client && from != gateway:
				t.Errorf("the client's network sees %v", p)
			case ok && to == client:
				answers[link] += size - 4*int(tcp.DataOffset)
			case ok && link == atSite && from == client && to != gateway:
				t.Errorf("the client's packet was changed: %v", p)
			}
		}
	}
	if answers[past] < 3*5<<20 || answers[atGateway] > 0 || answers[atSite] > 0 {
		t.Errorf("bytes of answers: %v", answers)
	}
}
