package censor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/vishvananda/netlink"

	"heddle/internal/netutil"
	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/path"
)

func TestMain(m *testing.M) {
	lab.MaybeEnter()
	os.Exit(m.Run())
}

func newWorld(t *testing.T) *lab.Instance {
	t.Helper()
	return labtest.Up(t, lab.ThreeWaysUnlimited())
}

// echo starts a server that sends each datagram back.
func echo(t *testing.T, in *lab.Instance) {
	t.Helper()
	var conn *net.UDPConn
	err := in.Host("server").Do(func() (err error) {
		conn, err = net.ListenUDP("udp", &net.UDPAddr{Port: 443})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		for buffer := make([]byte, 1500); ; {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			conn.WriteToUDPAddrPort(buffer[:n], from)
		}
	}()
}

// dial opens a socket by home.
func dial(t *testing.T, in *lab.Instance, source netip.Addr, server netip.Addr) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	err := in.Host("client").Do(func() (err error) {
		conn, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(server, 443)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// returned gives how many of the datagrams that are sent by one socket come back. It waits for as many as must; for what
// must not come it waits until one that another socket sent after them is back.
func returned(t *testing.T, conn, marker *net.UDPConn, must int, datagrams ...[]byte) int {
	t.Helper()
	for _, d := range datagrams {
		if _, err := conn.Write(d); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := marker.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 1500)
	marker.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := marker.Read(buffer); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		wait := time.Millisecond // for what is there: a deadline in the past reads nothing
		if n < must {
			wait = 10 * time.Second
		}
		conn.SetReadDeadline(time.Now().Add(wait))
		if _, err := conn.Read(buffer); err != nil {
			return n
		}
	}
}

func TestCensorInTheWay(t *testing.T) {
	in := newWorld(t)
	echo(t, in)
	open, blocked := quicHello(t, "open.example", quic.Version1), quicHello(t, "blocked.example", quic.Version2)
	for _, family := range []struct{ client, server netip.Addr }{
		{netip.MustParseAddr("10.101.1.2"), lab.ServerAddr}, {netip.MustParseAddr("2001:db8:101:1::2"), lab.ServerAddr6},
	} {
		conn := func() *net.UDPConn { return dial(t, in, family.client, family.server) }
		marker, convict := conn(), conn()
		if n := returned(t, convict, marker, len(blocked), blocked...); n != len(blocked) {
			t.Fatalf("without a censor %d of %d come back", n, len(blocked))
		}
		c, err := Start(t.Context(), in.Host("home-gw"), Options{Names: []string{"blocked.example"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Stop() })
		if n := returned(t, conn(), marker, len(open), open...); n != len(open) {
			t.Errorf("of an unlisted name's hello %d of %d come back", n, len(open))
		}
		if n := returned(t, convict, marker, 0, blocked...); n >= len(blocked) {
			t.Errorf("of a listed name's hello %d come back", n)
		}
		if n := returned(t, convict, marker, 0, []byte("later")); n != 0 {
			t.Error("a convicted flow passes")
		}
		// Dropped are the hello and what came later; and what came back of the hello's first datagram, if that was late.
		if s := c.Status(); s.Names[0].QUIC != 1 || s.Dropped < 2 || s.Dropped > 3 || s.Lost != 0 || s.Initials < 4 {
			t.Errorf("%+v", s)
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if n := returned(t, convict, marker, 1, []byte("later")); n != 1 {
			t.Error("a censor that was stopped drops packets")
		}
	}
	rules(t, in, 0)
}

// rules counts the censor's rules on the router.
func rules(t *testing.T, in *lab.Instance, want int) {
	t.Helper()
	err := in.Host("home-gw").Do(func() error {
		all, err := netlink.RuleList(netlink.FAMILY_ALL)
		n := 0
		for _, r := range all {
			if r.Table == 7070 { // that of the diversion
				n++
			}
		}
		if n != want {
			t.Errorf("%d rules of the censor, want %d", n, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCensorsThatCannotStart(t *testing.T) {
	in := newWorld(t)
	list := Options{Names: []string{"blocked.example"}}
	first, err := Start(t.Context(), in.Host("home-gw"), list)
	if err != nil {
		t.Fatal(err)
	}
	rules(t, in, 4) // two devices, two families
	for _, c := range []struct {
		host    string
		options Options
		want    string
	}{
		{"lte-gw", Options{}, "its list is empty"},
		{"lte-gw", Options{Names: []string{"x"}, Residual: -1}, "is no time"},
		{"lte-gw", Options{Attacks: []string{"rain"}}, "there is no attack"},
		{"client", list, "it forwards no packets"},
		{"home-gw", list, "device or resource busy"},
	} {
		other, err := Start(t.Context(), in.Host(c.host), c.options)
		if err == nil {
			other.Stop()
			t.Errorf("%s, %+v: no error", c.host, c.options)
		} else if p, ok := errors.AsType[*path.Error](err); !ok || p.Hint == "" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %+v: %v", c.host, c.options, err)
		}
	}
	rules(t, in, 4) // those of the first, still
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	rules(t, in, 0)
}

// A censor probes servers that clients connect to, and cuts off the one that answers. The packets that pass are late.
func TestProbesInTheWay(t *testing.T) {
	in := newWorld(t)
	for port, answers := range map[uint16]bool{443: true, 444: false} {
		var l net.Listener
		err := in.Host("server").Do(func() (err error) {
			l, err = net.Listen("tcp4", fmt.Sprint(":", port))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		go netutil.Serve(t.Context(), l, func(c net.Conn) {
			go func() {
				defer c.Close()
				to := io.Discard
				if answers {
					to = c
				}
				io.Copy(to, c)
			}()
		})
	}
	c, err := Start(t.Context(), in.Host("home-gw"), Options{Attacks: []string{"probe", "delay"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Stop() })
	home := &net.TCPAddr{IP: net.IPv4(10, 101, 1, 2)}
	reach := func(port int) net.Conn {
		t.Helper()
		var conn net.Conn
		err := in.Host("client").Do(func() (err error) {
			conn, err = (&net.Dialer{LocalAddr: home}).DialContext(t.Context(), "tcp", fmt.Sprint(lab.ServerAddr, ":", port))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	silent, answering := reach(444), reach(443)
	polltest.Until(t, func() error {
		for _, conn := range []net.Conn{silent, answering} {
			if _, err := conn.Write([]byte("hello")); err != nil {
				return err
			}
		}
		if s := c.Status(); s.Attacks[0].Connections == 0 || s.Probed != 2 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if s := c.Status(); s.Lost != 0 {
		t.Errorf("%+v", s)
	}
	if err := c.Stop(); err != nil { // it waits for its probes
		t.Error(err)
	}
	if s := c.Status(); s.Attacks[0].Connections != 1 || s.Packets < 10 {
		t.Errorf("%+v", s)
	}
}
