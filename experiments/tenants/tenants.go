package tenants

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gopacket/gopacket/layers"

	"heddle/experiments/readers"
	"heddle/lab/peer"
	"heddle/path"
)

// Options control [Run].
type Options struct {
	Heddle     string   // the binary under test
	Ways       []string // some of [Ways]
	Tenants    []string // some of [Names]
	Pseudonyms int      // of each tenant
	Visits     int      // by each pseudonym
	Seed       uint64   // of the order of visits
	Captures   string   // keep the captures in this directory, or ""
	Talk       io.Writer
}

// Connection is one visit.
type Connection struct {
	Way       string `json:"way"`
	Tenant    string `json:"tenant"`
	Pseudonym string `json:"pseudonym"`
	Seen      Seen   `json:"seen"`
}

// Write writes connections, one a line.
func Write(w io.Writer, all []Connection) error {
	buffered := bufio.NewWriter(w)
	e := json.NewEncoder(buffered)
	for _, c := range all {
		if err := e.Encode(c); err != nil {
			return err
		}
	}
	return buffered.Flush()
}

// pseudonym is one that the client has.
type pseudonym struct {
	peer.Pseudonym
	tenant string
}

// observed is the name of a way's capture.
func observed(way string) string { return way + ".pcapng" }

// Run visits all tenants in each way, in an order that is drawn, and returns what an observer reads of each connection, and what p0f says.
func Run(ctx context.Context, o Options) (all []Connection, says []Says, err error) {
	if err := errors.Join(o.check(), readers.Supported("tshark", "p0f")); err != nil {
		return nil, nil, err
	}
	dir := o.Captures
	if dir == "" {
		if dir, err = os.MkdirTemp("", "heddle-tenants-"); err != nil {
			return nil, nil, err
		}
		defer os.RemoveAll(dir)
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	for _, way := range o.Ways {
		some, p0f, err := o.one(ctx, way, dir)
		if err != nil {
			return nil, nil, fmt.Errorf("way %s: %w", way, err)
		}
		all, says = append(all, some...), append(says, p0f...)
	}
	return all, says, nil
}

func (o Options) check() error {
	for what, c := range map[string]struct{ some, all []string }{"tenant": {o.Tenants, Names()}, "way": {o.Ways, Ways()}} {
		for _, one := range c.some {
			if !slices.Contains(c.all, one) {
				return &path.Error{What: what + " " + one, Why: "there is none such", Hint: "one of " + strings.Join(c.all, ", ")}
			}
		}
	}
	switch {
	case len(o.Tenants) < 2:
		return &path.Error{What: "tenants", Why: "there are not two to tell apart"}
	case o.Pseudonyms < 1 || o.Visits < 1:
		return &path.Error{What: "visits", Why: "there are none", Hint: "at least one pseudonym and one visit by it"}
	}
	return nil
}

// one makes all visits of a way.
func (o Options) one(ctx context.Context, way, dir string) (all []Connection, says []Says, err error) {
	fmt.Fprintf(o.Talk, "%s: starting %d tenants\n", way, len(o.Tenants))
	w, err := begin(ctx, o.Heddle, way, o.Tenants)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, w.end()) }()
	known, err := o.register(ctx, w)
	if err != nil {
		return nil, nil, err
	}
	stop, err := w.in.CaptureAll(ctx, dir, map[string]string{way: "isp/client"})
	if err != nil {
		return nil, nil, err
	}
	err = o.visit(ctx, w, known)
	if err = errors.Join(err, stop()); err != nil {
		return nil, nil, err
	}
	file := filepath.Join(dir, observed(way))
	if all, err = connections(file, way, known); err != nil {
		return nil, nil, err
	}
	says, err = p0f(ctx, file, way, known)
	return all, says, err
}

// register gets the pseudonyms, and visits by each until that works: gateway and nameserver learn of sites a little later. A person has one of each tenant.
func (o Options) register(ctx context.Context, w *world) (all []pseudonym, err error) {
	for person := range o.Pseudonyms {
		home := filepath.Join(w.work, fmt.Sprintf("person-%d", person+1))
		if err := os.Mkdir(home, 0o700); err != nil {
			return nil, err
		}
		devices, err := peer.NewOverlay(o.Heddle, home, w.in)
		if err != nil {
			return nil, err
		}
		for _, name := range o.Tenants {
			got, err := w.cloud.By(devices).Get(ctx, "client", site(name))
			if err != nil {
				return nil, err
			}
			one := pseudonym{got, name}
			if err := w.serving.Await(ctx, func() error { return w.fetch(ctx, one) }); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// visit makes all visits, and one more, which ends when all others have.
func (o Options) visit(ctx context.Context, w *world, known []pseudonym) error {
	rng := rand.New(rand.NewPCG(o.Seed, uint64(slices.Index(Ways(), w.way))))
	n := len(known) * o.Visits
	for i, at := range rng.Perm(n) {
		one := known[at%len(known)]
		if err := w.fetch(ctx, one); err != nil {
			return fmt.Errorf("%s: %w", one.tenant, err)
		}
		if done := i + 1; done%100 == 0 || done == n {
			fmt.Fprintf(o.Talk, "%s: %d of %d visits\n", w.way, done, n)
		}
	}
	return w.fetch(ctx, known[0])
}

// fetch fetches the page by an unmodified curl.
func (w *world) fetch(ctx context.Context, one pseudonym) error {
	args := append([]string{"-sS", "--max-time", "20", "-o", filepath.Join(w.work, "fetched"), "-w", "%{http_code} %{size_download}"}, one.Files()...)
	switch w.way {
	case V6, Handoff6:
		args = append(args, "-6")
	case Direct:
		args = append(args, "-4", "--resolve", fmt.Sprintf("%s:%d:%s", one.Name, port, w.in.Host(one.tenant).Addrs()[0]))
	default:
		args = append(args, "-4")
	}
	out, err := w.in.Host("client").Command(ctx, "curl", append(args, one.URL)...).CombinedOutput()
	if err == nil && string(out) != fmt.Sprintf("200 %d", len(page())) {
		err = errors.New("it answered something else")
	}
	if err != nil {
		return fmt.Errorf("curl: %w: %s", err, out)
	}
	return nil
}

// connections reads a capture. The last connection may not have ended in it.
func connections(file, way string, known []pseudonym) (all []Connection, err error) {
	flows, err := read(file, layers.TCPPort(port))
	if err != nil {
		return nil, err
	}
	by := map[string]pseudonym{}
	for _, one := range known {
		by[one.Name] = one
	}
	for i, f := range flows {
		one, ok := by[f.name]
		if !ok || i == len(flows)-1 {
			continue
		}
		seen, err := f.seen()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, Connection{way, one.tenant, one.Name, seen})
	}
	return all, nil
}
