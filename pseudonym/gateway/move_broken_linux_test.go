package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/internal/tcprepair"
	"heddle/pseudonym"
	"heddle/pseudonym/ca/catest"
)

// leads is a switch that does something in place of leading.
type leads func() error

func (f leads) Lead(_, _, _ netip.AddrPort) error { return f() }

// greets sends a client's first message to a gateway.
func greets(t *testing.T, at, name string) *net.TCPConn {
	t.Helper()
	c, err := (&net.Dialer{KeepAlive: -1}).Dial("tcp", at) // a probe would end the silence
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(polltest.Patience))
	go func() {
		_ = tls.Client(unread{c}, &tls.Config{ServerName: name, MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}).Handshake()
	}()
	return c.(*net.TCPConn)
}

// unread is a connection whose answers somebody else reads.
type unread struct{ net.Conn }

func (unread) Read([]byte) (int, error) { select {} }

// What is lost between a gateway and an agent in the middle of a move ends with a reset for the client, and not in silence. What can go on does.
func TestMoveBreaks(t *testing.T) {
	if err := tcprepair.Allowed(); err != nil {
		t.Skip("typed skip:", err)
	}
	for name, c := range map[string]struct {
		answers []byte // of the agent
		leads   func(agent *net.TCPConn) error
		begins  bool // the agent ends when it is told to begin
		lost    bool
	}{
		"the agent dies once it is ready": {[]byte{moveReady}, func(agent *net.TCPConn) error {
			return errors.Join(agent.SetLinger(0), agent.Close()) // the gateway's machine learns of it at once
		}, false, true},
		"the agent dies when it is to begin": {[]byte{moveReady}, func(*net.TCPConn) error { return nil }, true, true},
		"the switch fails":                   {[]byte{moveReady}, func(*net.TCPConn) error { return errors.New("no room") }, false, false},
		"the agent says what is no answer":   {[]byte{7}, nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			agents := make(chan *net.TCPConn, 1)
			at := agentThat(t, func(raw *net.TCPConn, way net.Conn) {
				for {
					if _, err := readMove(way); err != nil {
						return
					}
					agents <- raw
					_, _ = way.Write(c.answers)
					if c.begins {
						_, _ = io.ReadFull(way, make([]byte, 1))
						return
					}
				}
			})
			issuer, _ := catest.NewIssuer(t, string(zone))
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			label := pseudonym.NewLabel()
			name := zone.Name(label)
			to := Place{Addresses: []string{AgentPrefix + at, siteAt(t, l, issuer, name, nil)}, Key: keyOf(ofTenant)}
			open := func() (Holder, error) { return Here(leads(func() error { return c.leads(<-agents) })), nil }
			g := New(Options{Zone: zone, Router: fixed{label, to}, Mover: NewMover(identity(ofGateways), open), Log: slog.New(slog.DiscardHandler)})
			in, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- g.Serve(ctx, in) }()
			defer func() { cancel(); <-ended }()

			client := greets(t, in.Addr().String(), name)
			_, err = io.ReadFull(client, make([]byte, 1))
			if c.lost != errors.Is(err, syscall.ECONNRESET) || !c.lost && err != nil {
				t.Errorf("the client reads: %v", err)
			}
			client.Close()
			want := Counts{Relayed: 1}
			if c.lost {
				want = Counts{Failed: 1}
			}
			polltest.Await(t, "it is counted", func() bool {
				got := g.Counts()
				got.BytesUp, got.BytesDown = 0, 0
				return got == want
			})
		})
	}
}

// agentThat serves gateways with the tenant's key, and returns where.
func agentThat(t *testing.T, do func(raw *net.TCPConn, way net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				way := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{identity(ofTenant)}, ClientAuth: tls.RequireAnyClientCert})
				if way.Handshake() == nil {
					do(c.(*net.TCPConn), way)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// A gateway without rights that is killed when the switch leads a connection already, and before it has told the agent: the client gets a reset.
func TestGatewayIsKilledWhileItMoves(t *testing.T) {
	m := newMovingBy(t, places4, false, byStuck, nil)
	var client *net.TCPConn
	m.client.Do(t, func() error {
		client = greets(t, at(m.public, 443).String(), zone.Name(m.label))
		return nil
	})
	if line := m.way.line(t); line != "led\n" {
		t.Fatalf("the gateway says %q", line)
	}
	m.way.kill()
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client reads: %v", err)
	}
}

// A connection moves to another agent of the tenant while one stands still, whose machine takes connections for it.
func TestMoveToAnotherAgent(t *testing.T) {
	m := newMoving(t, places4, false)
	m.way.kill()
	file, l := listenSidecar(t)
	issuer, root := catest.NewIssuer(t, string(zone))
	m.config.RootCAs.AddCert(root)
	siteAt(t, l, issuer, zone.Name(m.label), nil)
	second := at(m.site, 4445).String()
	m.start(m.tenant, role{Listen: second, Sidecar: file})
	way := m.routing
	way.To = []string{AgentPrefix + m.agentAt(), AgentPrefix + second}
	m.way = m.start(m.gateway, way)
	for range 8 { // both are used, most likely
		c, _ := m.visit(m.config)
		c.Close()
	}
	if err := m.agent.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		c, _ := m.visit(m.config)
		m.echo(c, 1000)
	}
	m.expect(Counts{Moved: 12})
}

// A sidecar that dies or hangs when it has a connection leaves no client in silence once it has ended.
func TestSidecarEndsWhileItIsGivenAConnection(t *testing.T) {
	m := newMoving(t, places4, false)
	for i, does := range []func(net.Conn) error{
		func(way net.Conn) error { // it dies with the connection

			c, _, err := takeDescriptor(way)
			return errors.Join(err, c.Close(), way.Close())
		},
		func(way net.Conn) error { // it hangs, and ends
			polltest.Await(t, "the connection moves", func() bool { return m.way.counts(t).Moved == 2 })
			return way.Close()
		},
	} {
		m.agent.kill()
		file, sidecar := listenSidecar(t)
		m.agent = m.start(m.tenant, role{Listen: m.agentAt(), Sidecar: file})
		var client *net.TCPConn
		m.client.Do(t, func() error {
			client = greets(t, at(m.public, 443).String(), zone.Name(m.label))
			return nil
		})
		way, err := sidecar.Accept()
		if err == nil {
			err = does(way)
		}
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d: the client reads: %v", i, err)
		}
		// The agent tells the gateway so after the client has its reset. It ends now.
		polltest.Await(t, "the gateway counts the connection", func() bool { return m.way.counts(t).Moved == uint64(i+1) })
		sidecar.Close()
	}
}
