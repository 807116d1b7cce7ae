package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	inside "heddle/internal/netns"
	"heddle/path"
)

// Options control how a world is made.
type Options struct {
	Name       string // of the instance; empty for the world's name and a random suffix
	Seed       uint64 // makes loss, jitter and reordering repeatable
	Background bool   // this process only runs the world, so `heddle lab down` may end it
}

// Instance is a world that is up.
type Instance struct {
	state  State
	hosts  map[string]*Host
	links  map[string]*Link
	engine *engine // nil if no link is emulated, or if another process owns the world

	mu      sync.Mutex
	running []func() // stop captures
	down    bool
}

// ErrUnsupported is wrapped by [Supported] if this machine or user cannot have a world.
var ErrUnsupported = errors.New("no worlds of network namespaces here")

// Supported returns nil, or an error that says why no world can be made and wraps [ErrUnsupported].
func Supported() error {
	no := func(why, hint string) error {
		return &path.Error{What: "lab", Why: why, Hint: hint, Err: ErrUnsupported}
	}
	if os.Geteuid() != 0 {
		return no("making network namespaces needs root", "run it as root")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return no("there is no /dev/net/tun", "mknod /dev/net/tun c 10 200, or modprobe tun")
	}
	err := inside.OnThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() error { return nil })
	if err != nil {
		return no("the kernel refuses a network namespace ("+err.Error()+")", "CAP_SYS_ADMIN is needed; in a container run it privileged")
	}
	return nil
}

// Up makes the world. This process owns it: its emulated links stop with the process, so call [Instance.Down]. The
// program must have called [MaybeEnter] first. If Up fails it leaves nothing behind.
func Up(ctx context.Context, world World, options Options) (*Instance, error) {
	if err := world.Validate(); err != nil {
		return nil, err
	}
	if err := Supported(); err != nil {
		return nil, err
	}
	if !enterReady {
		return nil, &path.Error{What: "lab", Why: "the program does not call lab.MaybeEnter", Hint: "call it first in main or TestMain"}
	}
	if options.Name == "" {
		var random [4]byte
		rand.Read(random[:])
		options.Name = world.Name + "-" + hex.EncodeToString(random[:])
	}
	if !nameRule.MatchString(options.Name) {
		return nil, &path.Error{What: fmt.Sprintf("world %q", options.Name), Why: "no name for a world",
			Hint: "1 to 40 lower-case letters, digits and '-'"}
	}
	owner, err := thisProcess()
	if err != nil {
		return nil, err
	}
	in := &Instance{hosts: map[string]*Host{}, links: map[string]*Link{}}
	in.state = State{Name: options.Name, World: world, Since: time.Now(), Owner: owner, Background: options.Background}
	if err := in.state.claim(); err != nil {
		return nil, err
	}
	if err := in.build(ctx, options.Seed); err != nil {
		return nil, errors.Join(fmt.Errorf("world %s: %w", options.Name, err), in.Down())
	}
	return in, nil
}

func (in *Instance) build(ctx context.Context, seed uint64) error {
	for _, spec := range in.state.World.Hosts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := in.addHost(spec); err != nil {
			return err
		}
	}
	if err := in.addLinks(seed); err != nil {
		return err
	}
	for _, h := range in.hosts {
		if err := h.route(func(Route) bool { return true }); err != nil {
			return err
		}
		if h.spec.Masquerade != "" {
			if err := h.masquerade(h.spec.Masquerade); err != nil {
				return err
			}
		}
	}
	in.state.Ready = true
	return in.state.write()
}

// addLinks makes the devices, starts the engine if some are emulated, and configures all.
func (in *Instance) addLinks(seed uint64) error {
	var emulated []LinkSpec
	var devices []*os.File
	for _, spec := range in.state.World.Links {
		link := &Link{spec: spec, in: in, index: -1}
		in.links[spec.Name] = link
		var err error
		if spec.Emulated() {
			var files []*os.File
			link.index = len(emulated)
			emulated = append(emulated, spec)
			files, err = link.createTUN()
			devices = append(devices, files...)
		} else {
			err = link.createVeth()
		}
		if err != nil {
			for _, f := range devices {
				f.Close()
			}
			return fmt.Errorf("link %s: %w", spec.Name, err)
		}
	}
	if len(emulated) > 0 {
		var err error
		if in.engine, err = startEngine(emulated, devices, seed); err != nil {
			return err
		}
	}
	for name, link := range in.links {
		if err := link.configure(); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	for name, link := range in.links {
		if err := link.awaitCarrier(); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return nil
}

func (in *Instance) addHost(spec HostSpec) error {
	ns, err := createNamespace(namespaceName(in.state.Name, spec.Name))
	if err != nil {
		return err
	}
	h := &Host{spec: spec, in: in, ns: ns}
	in.hosts[spec.Name] = h
	if c := in.state.World.Congestion; c != "" {
		if err := ns.do(func() error { return inside.Configure(inside.Setting{"ipv4/tcp_congestion_control", c}) }); err != nil {
			return &path.Error{What: "TCP congestion control " + c, Why: "a network namespace cannot use it", Hint: "`sysctl net.ipv4.tcp_allowed_congestion_control` lists those that it can", Err: err}
		}
	}
	if spec.Router {
		if err := ns.do(func() error { return inside.Configure(routerSysctls...) }); err != nil {
			return fmt.Errorf("host %s: %w", spec.Name, err)
		}
	}
	if err := h.setUp("lo", true); err != nil {
		return err
	}
	return writeHostFiles(in.state, spec)
}

// writeHostFiles writes the files that a process in the host sees instead of the machine's own.
func writeHostFiles(s State, spec HostSpec) error {
	home := hostDir(s.Name, spec.Name)
	for _, d := range []string{home, filepath.Join(home, "run"), filepath.Join(home, "wireguard")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	if err := mountBPF(home); err != nil {
		return err
	}
	hosts := "127.0.0.1 localhost\n::1 localhost\n"
	for _, n := range s.World.Names {
		hosts += n.Addr.String() + " " + n.Name + "\n"
	}
	resolv := ""
	for _, a := range spec.Nameservers {
		resolv += "nameserver " + a.String() + "\n"
	}
	if err := os.WriteFile(filepath.Join(home, "hosts"), []byte(hosts), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(home, "resolv.conf"), []byte(resolv), 0o644)
}

// Name is the name of the instance.
func (in *Instance) Name() string { return in.state.Name }

// State returns the recorded state of the world.
func (in *Instance) State() State { return in.state }

// Host returns a host of the world. It panics if the name is unknown.
func (in *Instance) Host(name string) *Host {
	h, err := in.LookupHost(name)
	if err != nil {
		panic(err)
	}
	return h
}

// LookupHost returns a host of the world.
func (in *Instance) LookupHost(name string) (*Host, error) {
	if h, ok := in.hosts[name]; ok {
		return h, nil
	}
	var names string
	for _, h := range in.state.World.Hosts {
		names += " " + h.Name
	}
	return nil, &path.Error{What: "world " + in.state.Name, Why: fmt.Sprintf("no host is called %q", name), Hint: "hosts:" + names}
}

// Link returns a link of the world. It panics if the name is unknown.
func (in *Instance) Link(name string) *Link {
	l, ok := in.links[name]
	if !ok {
		panic(fmt.Sprintf("lab: world %s has no link %q", in.state.Name, name))
	}
	return l
}

// Status returns the status of each emulated link of this instance, in the world's order, and their joint lateness.
// Both are empty if this process emulates no link.
func (in *Instance) Status() ([]LinkStatus, Lateness, error) {
	if in.engine == nil {
		return nil, Lateness{}, nil
	}
	a, err := in.engine.ask(order{Link: -1})
	return a.Links, a.All, err
}

// Lateness returns the lateness of all links that this process emulates: zero without any, or after the emulator ended.
func (in *Instance) Lateness() Lateness {
	_, late, err := in.Status()
	if err != nil {
		return Lateness{}
	}
	return late
}

// ResetLateness restarts the lateness count, so that each run of an experiment has its own.
func (in *Instance) ResetLateness() error {
	if in.engine == nil {
		return nil
	}
	_, err := in.engine.ask(order{Link: -1, Reset: true})
	return err
}

// Open joins a world that another process owns. Its emulated links can be taken down and up, but not shaped.
func Open(name string) (*Instance, error) {
	s, err := readState(name)
	if err != nil {
		return nil, err
	}
	if !s.Ready || !s.Owner.Alive() {
		return nil, &path.Error{What: "world " + name, Why: "it is not whole: its owner has ended or is not done making it",
			Hint: "heddle lab down " + name}
	}
	in := &Instance{state: s, hosts: map[string]*Host{}, links: map[string]*Link{}}
	for _, spec := range s.World.Hosts {
		ns, err := openNamespace(namespaceName(name, spec.Name))
		if err != nil {
			in.Close()
			return nil, err
		}
		in.hosts[spec.Name] = &Host{spec: spec, in: in, ns: ns}
	}
	for _, spec := range s.World.Links {
		in.links[spec.Name] = &Link{spec: spec, in: in, index: -1}
	}
	return in, nil
}

// Close releases the world without taking it down.
func (in *Instance) Close() error {
	in.mu.Lock()
	stops := in.running
	in.running = nil
	in.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
	var err error
	if in.engine != nil {
		err = in.engine.close()
		in.engine = nil
	}
	for _, h := range in.hosts {
		h.ns.close()
	}
	return err
}

// Down ends the processes in the hosts and removes the world. It may be called again.
func (in *Instance) Down() error {
	in.mu.Lock()
	already := in.down
	in.down = true
	in.mu.Unlock()
	if already {
		return nil
	}
	ended := endInside(in.state.namespaces(), in.state.Owner.PID)
	return errors.Join(ended, in.Close(), sweep(in.state))
}
