package client

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"

	"heddle/internal/netutil"
	"heddle/internal/polltest"
	"heddle/path"
	"heddle/schedule"
)

// gate is a path that a test shuts: its connections are reset, and it makes no more.
type gate struct {
	path.Path

	mu    sync.Mutex
	shut  bool
	tries int // while shut
	open  map[net.Conn]bool
	sent  int
}

func (g *gate) Dial(ctx context.Context, to path.Target) (net.Conn, error) {
	g.mu.Lock()
	shut := g.shut
	if shut {
		g.tries++
	}
	g.mu.Unlock()
	if shut {
		return nil, syscall.EHOSTUNREACH
	}
	c, err := path.Dial(ctx, g.Path, to)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[c] = true
	return &gated{c, g}, nil
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	for c := range g.open {
		if shut {
			netutil.Reset(c)
		}
	}
}

func (g *gate) count() (tries, open, sent int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tries, len(g.open), g.sent
}

type gated struct {
	net.Conn
	g *gate
}

func (c *gated) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	c.g.sent += n
	return n, err
}

func (c *gated) Close() error {
	c.g.mu.Lock()
	delete(c.g.open, c.Conn)
	c.g.mu.Unlock()
	return c.Conn.Close()
}

// While one of two required paths is down, the link sends nothing by the other. It goes on when the path is back.
func TestPathDiesWhileTheLinkRuns(t *testing.T) {
	t.Parallel()
	o := echoBridge(t)
	gates := map[string]*gate{}
	// The schedule hardly ever draws the path that dies.
	o.Connections, o.Schedule = 4, schedule.Config{Name: "weighted", Weights: []float64{1, 1e-6}}
	for _, spec := range []path.Spec{{Name: "stays", Kind: "src", Arg: "127.0.0.2"}, {Name: "dies", Kind: "src", Arg: "127.0.0.3"}} {
		p, err := path.New(spec, path.Options{})
		if err != nil {
			t.Fatal(err)
		}
		gates[spec.Name] = &gate{Path: p, open: map[net.Conn]bool{}}
		o.Paths = append(o.Paths, Path{Name: spec.Name, Path: gates[spec.Name]})
	}
	c, err := Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	echo := func(b []byte) {
		t.Helper()
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
	}
	before := bytes.Repeat([]byte("before"), 1000)
	if _, err := c.Write(before); err != nil {
		t.Fatal(err)
	}
	echo(make([]byte, len(before)))

	gates["dies"].set(true)
	polltest.Await(t, "the other path's connections end", func() bool { _, open, _ := gates["stays"].count(); return open == 0 })
	_, _, sent := gates["stays"].count()
	meanwhile := bytes.Repeat([]byte("meanwhile"), 1000)
	if _, err := c.Write(meanwhile); err != nil {
		t.Fatal(err)
	}
	tried, _, _ := gates["dies"].count()
	polltest.Await(t, "the dead path is tried again, twice", func() bool { tries, _, _ := gates["dies"].count(); return tries >= tried+2 })
	if _, open, now := gates["stays"].count(); open > 0 || now != sent {
		t.Errorf("%d bytes left by the other path alone, on %d connections", now-sent, open)
	}

	gates["dies"].set(false)
	got := make([]byte, len(meanwhile))
	if echo(got); !bytes.Equal(got, meanwhile) {
		t.Error("other bytes came back")
	}
}
