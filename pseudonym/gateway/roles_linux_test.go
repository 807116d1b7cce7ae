package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"heddle/internal/netutil"
	"heddle/internal/nstest"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/ech"
	"heddle/pseudonym/gateway/bpfswitch"
	"heddle/pseudonym/gateway/nftswitch"
	"heddle/pseudonym/gateway/ovsswitch"
)

// A network namespace is one of threads, so gateway and agent run as processes of their own: this test again, with a role.
const roleVariable = "HEDDLE_GATEWAY_TEST_ROLE"

func TestMain(m *testing.M) {
	if text := os.Getenv(roleVariable); text != "" {
		var r role
		if err := errors.Join(json.Unmarshal([]byte(text), &r), r.run()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// role is what a process does.
type role struct {
	Listen  string
	Sidecar string // file of a socket; it is an agent then, or else a gateway
	Server  string // of an agent, in place of a sidecar
	Bare    bool   // an agent without rights
	Stuck   bool   // a gateway that stops once it has led a connection
	Label   pseudonym.Label
	To      []string
	Hello   [2][]byte // configuration and private key of an encrypted hello
	Bridge  string    // of Open vSwitch; without one nftables lead
	Pins    string    // of BPF programs, which lead
	Late    bool      // its nftables are never sure that packets go elsewhere
	Switch  string    // file of the socket of a process that holds and leads, which this is without Listen; a gateway with it has no rights
}

func (r role) open() (Holder, error) {
	if r.Switch != "" && r.Stuck {
		return stuckHolder{Elsewhere(r.Switch)}, nil
	}
	if r.Switch != "" {
		return Elsewhere(r.Switch), nil
	}
	if r.Bridge != "" {
		s, err := ovsswitch.New(ovsswitch.Options{Bridge: r.Bridge})
		return Here(s), err
	}
	if r.Pins != "" {
		s, err := bpfswitch.New(bpfswitch.Options{Pins: r.Pins})
		return Here(s), err
	}
	s, err := nftswitch.New()
	if r.Late {
		return Here(late{s}), err
	}
	return Here(s), err
}

// late is a switch that never settles.
type late struct{ Switch }

func (late) Settle() { select {} }

// stuckHolder stops for ever once it has led a connection, and says so.
type stuckHolder struct{ Holder }

func (s stuckHolder) Hold(c *net.TCPConn) (Hold, error) {
	h, err := s.Holder.Hold(c)
	return stuckHold{h}, err
}

type stuckHold struct{ Hold }

func (s stuckHold) Lead(tenant netip.AddrPort) error {
	if err := s.Hold.Lead(tenant); err != nil {
		return err
	}
	fmt.Println("led")
	select {}
}

// identity returns the certificate of a key that all processes can make.
func identity(t byte) tls.Certificate {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{t}, ed25519.SeedSize))
	c, err := ca.Client("test", key, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}
}

const (
	ofGateways = 'g'
	ofTenant   = 't'
	ofNobody   = 'n'
)

func keyOf(t byte) ca.KeyID { return ca.KeyOf(identity(t).Leaf) }

// run serves until it is killed. It says when it listens, and answers each line with its counts.
func (r role) run() error {
	if r.Listen == "" {
		return r.hold()
	}
	l, err := net.Listen("tcp", r.Listen)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if r.Sidecar != "" || r.Server != "" {
		fmt.Println("ready")
		a := &Agent{Identity: identity(ofTenant), Gateways: keyOf(ofGateways), Sidecar: r.Sidecar, Server: r.Server, Log: log}
		return a.Serve(context.Background(), l)
	}
	key, err := ech.ParseKey(r.Hello[0], r.Hello[1])
	if err != nil {
		return err
	}
	g := New(Options{Zone: zone, Router: fixed{r.Label, Place{Addresses: r.To, Key: keyOf(ofTenant)}}, Hellos: func() []*ech.Key { return []*ech.Key{key} },
		Mover: NewMover(identity(ofGateways), r.open), Log: log})
	fmt.Println("ready")
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			_ = json.NewEncoder(os.Stdout).Encode(g.Counts())
		}
	}()
	return g.Serve(context.Background(), l)
}

// hold holds connections for a gateway.
func (r role) hold() error {
	l, err := netutil.ListenUnix(r.Switch)
	if err != nil {
		return err
	}
	s, err := nftswitch.New()
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return ServeHolds(context.Background(), l, Here(s))
}

// fixed is a router of one pseudonym.
type fixed struct {
	label pseudonym.Label
	to    Place
}

func (f fixed) Route(_ context.Context, l pseudonym.Label) (Place, error) {
	if l != f.label {
		return Place{}, pseudonym.ErrNone
	}
	return f.to, nil
}

func (fixed) Ended(context.Context, []pseudonym.Label) ([]pseudonym.Label, error) { return nil, nil }

// process is a role that runs.
type process struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}

func (p *process) counts(t *testing.T) (c Counts) {
	t.Helper()
	_, err := io.WriteString(p.in, "\n")
	if err = errors.Join(err, json.Unmarshal([]byte(p.line(t)), &c)); err != nil {
		t.Fatal(err)
	}
	return c
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (m *moving) start(on nstest.Namespace, r role) *process {
	m.t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		m.t.Fatal(err)
	}
	p := &process{cmd: exec.Command("/proc/self/exe")}
	if r.Switch != "" && r.Listen != "" || r.Bare { // root's programs have the rights of the bounding set
		p.cmd = exec.Command("setpriv", "--bounding-set=-all", "--inh-caps=-all", fmt.Sprintf("/proc/%d/exe", os.Getpid()))
	}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), roleVariable+"="+string(text)), os.Stderr
	p.in, err = p.cmd.StdinPipe()
	out, other := p.cmd.StdoutPipe()
	if err = errors.Join(err, other); err != nil {
		m.t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	on.Do(m.t, p.cmd.Start)
	m.t.Cleanup(p.kill)
	if line := p.line(m.t); line != "ready\n" {
		m.t.Fatalf("it says %q", line)
	}
	return p
}
