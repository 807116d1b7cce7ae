package overlay

import (
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"heddle/lab"
)

const secret = "the quick brown fox says what nobody on the way may read"

func both(kind, a, b string) []string {
	return []string{kind + " " + a + " " + b, kind + " " + b + " " + a}
}

// A TCP stream by a node: the client's network sees the node, and nothing of the stream; the server sees the node.
func TestStreamByANode(t *testing.T) {
	w := newWorld(t)
	w.serve(func(c net.Conn) { io.Copy(c, c) })
	w.pass("one", "one", "--to", server.String())
	stop := w.watch("client/to-one", "client/to-two", "server/core")
	out, talk, err := w.Try("client", strings.Repeat(secret, 1000), "connect", "--via", "a=node:one", server.Addr().String(), strconv.Itoa(int(server.Port())))
	if err != nil || out != strings.Repeat(secret, 1000) {
		t.Fatalf("%d bytes came back, %v\n%s", len(out), err, talk)
	}
	seen := stop()
	near := both("tcp", lab.NodeAddr(0).Next().String(), nearNode["one"])
	wantTalks(t, "the client's network", seen["client/to-one"], 5, near...)
	wantTalks(t, "the client's other network", seen["client/to-two"], 0)
	wantTalks(t, "the server's network", seen["server/core"], 5, both("tcp", farNode["one"], lab.ServerAddr.String())...)
	for _, name := range near {
		if text := seen["client/to-one"][name].text.String(); strings.Contains(text, secret[:12]) || strings.Contains(text, server.String()) {
			t.Errorf("the client's network reads the stream in %s", name)
		}
	}
}

// What a grant does not give is not had: no packet leaves the node for it, and no byte beyond the limit.
func TestGrantsLimitsHold(t *testing.T) {
	w := newWorld(t)
	const limit = 50_000
	w.serve(func(c net.Conn) { c.Write(make([]byte, 1_000_000)) })
	w.pass("one", "few", "--to", server.String(), "--bytes", strconv.Itoa(limit))
	w.pass("two", "elsewhere", "--to", "192.0.2.77:80")
	w.pass("two", "public")
	expired := w.shortPass("two", "expired", "--to", server.String())
	stop := w.watch("server/core")
	dialTo := func(via, host string) (string, string, error) {
		return w.Try("client", "", "connect", "--via", via, host, strconv.Itoa(int(server.Port())))
	}
	dial := func(via string) (string, string, error) { return dialTo(via, server.Addr().String()) }
	out, _, _ := dial("a=node:few")
	if len(out) == 0 || len(out) > limit {
		t.Errorf("%d bytes came, of %d", len(out), limit)
	}
	if _, talk, err := dial("a=node:few"); err == nil || !strings.Contains(talk, "used up") {
		t.Errorf("afterwards: %v\n%s", err, talk)
	}
	heard := stop()["server/core"]
	stop = w.watch("two/core")
	for name, to := range map[string]string{"elsewhere": server.Addr().String(), "public": "10.100.2.2"} { // which is core's
		if _, talk, err := dialTo("a=node:"+name, to); err == nil || !strings.Contains(talk, "does not lead there") || !strings.Contains(talk, "hint:") {
			t.Errorf("%s: %v\n%s", name, err, talk)
		}
	}
	wantTalks(t, "the network behind the node", stop()["two/core"], 0)
	// A device that stole a pass.
	file, err := os.ReadFile(expired)
	if err != nil {
		t.Fatal(err)
	}
	stolen := w.Home("core") + "/stolen.json"
	if err := os.WriteFile(stolen, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, talk, err := w.Try("core", "", "node", "add", stolen); err == nil || !strings.Contains(talk, "is for the key") {
		t.Errorf("a stolen pass is kept: %v\n%s", err, talk)
	}
	if _, talk, err := w.Try("core", "", "connect", "--via", "a=node:"+stolen, server.Addr().String(), "7000"); err == nil {
		t.Errorf("a stolen pass leads somewhere\n%s", talk)
	}
	for end, talk := time.Now().Add(time.Minute), ""; !strings.Contains(talk, "the grant has ended"); {
		if _, talk, err = dial("a=node:expired"); time.Now().After(end) { // a stream that is under way then is cut off
			t.Fatalf("%v\n%s", err, talk)
		}
	}
	if down := heard["tcp "+lab.ServerAddr.String()+" "+farNode["one"]]; down == nil || down.payload < len(out) {
		t.Errorf("the capture missed what the server sent")
	}
	for name, one := range heard {
		if strings.HasSuffix(name, farNode["two"]) || strings.Contains(name, lab.NodeAddr(0).Next().String()) {
			t.Errorf("the server heard %d packets of %s", one.packets, name)
		}
	}
}

// A UDP session split over two nodes: each network sees its node only, and the server sees two addresses, none of them the
// client's. With one exit behind both it sees one address and one port.
func TestSplitOverNodes(t *testing.T) {
	w := newWorld(t)
	w.echoUDP()
	for _, host := range []string{"one", "two"} {
		w.pass(host, host, "--to", server.String(), "--to", exitAt)
	}
	w.pass("core", "exit", "--to", server.String())
	for _, c := range []struct {
		name  string
		paths []string
		from  []string // as the server sees it
	}{
		{"two nodes", []string{"--via", "a=node:one", "--via", "b=node:two"}, []string{farNode["one"], farNode["two"]}},
		{"one exit", []string{"--via", "a=node:exit@one", "--via", "b=node:exit@two", "--path", "one=node:one", "--path", "two=node:two"}, []string{farNode["core"]}},
	} {
		stop := w.watch("client/to-one", "client/to-two", "server/core", "one/core")
		split := w.Start("client", "listening on", append([]string{"split", "--listen", relayAt, "--to", server.String(), "--schedule", "round-robin", "--every", "5p"}, c.paths...)...)
		w.askUDP(60)
		split.Stop()
		seen := stop()
		for i, way := range []string{"one", "two"} {
			wantTalks(t, c.name+": the network to "+way, seen["client/to-"+way], 20, both("udp", lab.NodeAddr(i).Next().String(), nearNode[way])...)
		}
		var want []string
		for _, from := range c.from {
			want = append(want, both("udp", from, lab.ServerAddr.String())...)
		}
		wantTalks(t, c.name+": the server's network", seen["server/core"], 20, want...)
		if c.name == "one exit" {
			ports := seen["server/core"]["udp "+farNode["core"]+" "+lab.ServerAddr.String()].ports
			if len(ports) != 1 {
				t.Errorf("the server saw the ports %v", slices.Collect(maps.Keys(ports)))
			}
			wantTalks(t, "the entry's network", seen["one/core"], 20, both("udp", farNode["one"], farNode["core"])...)
		}
	}
}
