package bft

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/board"
	"heddle/board/space"
	"heddle/lab"
)

// The environment in which this program is a replica, each in a process of its own, as they are in life.
const (
	replicaHome  = "HEDDLE_BFT_TEST_HOME"
	replicaFault = "HEDDLE_BFT_TEST_FAULT" // byzantine, join (from a snapshot), or nothing
	// Where it is "many", checkpoints are near each other, with a snapshot at each.
	replicaSnapshots = "HEDDLE_BFT_TEST_SNAPSHOTS"
)

func TestMain(m *testing.M) {
	lab.MaybeEnter()
	if home := os.Getenv(replicaHome); home != "" {
		if os.Getenv(replicaFault) == "byzantine" {
			beByzantine()
		}
		if os.Getenv(replicaSnapshots) == "many" {
			checkpoint, snapshotEvery = 16, 16
		}
		os.Exit(beReplica(home))
	}
	os.Exit(m.Run())
}

// beReplica runs until its standard input ends: so that none outlives the test.
func beReplica(home string) int {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := Run(ctx, Options{Home: home, Log: log, FromSnapshot: os.Getenv(replicaFault) == "join", Ready: func(at net.Addr) { fmt.Println(at) }}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// fleet is the replicas of a board.
type fleet struct {
	t         *testing.T
	dir       string
	reference board.Reference
	command   func(i int, program string) *exec.Cmd
	dial      func(ctx context.Context, network, address string) (net.Conn, error) // nil where replicas are on this machine
	running   []*process
}

type process struct {
	*exec.Cmd
	stdin io.Closer
	log   *lockedBuffer
}

// lockedBuffer is written by a process and read by the test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newFleet makes four homes; hosts are their addresses.
func newFleet(t *testing.T, hosts []string, command func(i int, program string) *exec.Cmd) *fleet {
	t.Helper()
	dir := t.TempDir()
	reference, err := Create(Plan{Dir: dir, Hosts: hosts, Port: 7446, PeerPort: 7546, Limits: space.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, dir: dir, reference: reference, command: command, running: make([]*process, len(hosts))}
	t.Cleanup(func() {
		for i := range f.running {
			f.kill(i)
		}
	})
	return f
}

// loopback gives four addresses of this machine at which nobody listens on the ports of replicas, and which no other
// process's test takes meanwhile.
func loopback(t *testing.T) []string {
	t.Helper()
	for third := range 250 {
		claim, err := net.Listen("tcp", fmt.Sprintf("127.74.%d.1:7646", third+1))
		if err != nil {
			continue
		}
		t.Cleanup(func() { claim.Close() })
		var hosts []string
		for i := range 4 {
			host := fmt.Sprintf("127.74.%d.%d", third+1, i+1)
			if l, err := net.Listen("tcp", host+":7546"); err == nil {
				_ = l.Close()
				hosts = append(hosts, host)
			}
		}
		// Another test's replicas have all four or none, once they are up.
		if len(hosts) == 4 {
			return hosts
		}
	}
	t.Fatal("no address of this machine is free")
	return nil
}

func here(_ int, program string) *exec.Cmd { return exec.Command(program) }

func (f *fleet) home(i int) string { return filepath.Join(f.dir, fmt.Sprint(i)) }

// start starts a replica, and waits until clients can come.
func (f *fleet) start(i int, fault string) {
	f.t.Helper()
	if err := f.startLater(i, fault)(); err != nil {
		f.t.Fatal(err)
	}
}

// startLater starts a replica, and gives what waits for it.
func (f *fleet) startLater(i int, fault string) (wait func() error) {
	f.t.Helper()
	program, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	p := &process{Cmd: f.command(i, program), log: &lockedBuffer{}}
	p.Env = append(os.Environ(), replicaHome+"="+f.home(i), replicaFault+"="+fault)
	p.Stderr = p.log
	if p.stdin, err = p.StdinPipe(); err != nil {
		f.t.Fatal(err)
	}
	stdout, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.running[i] = p
	return func() error {
		if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
			_ = p.Wait() // until all that it said is here
			return fmt.Errorf("replica %d does not start: %w\n%s", i, err, p.log)
		}
		return nil
	}
}

// startAll starts those that do not run.
func (f *fleet) startAll(faults ...string) {
	f.t.Helper()
	var waits []func() error
	for i, p := range f.running {
		if p == nil {
			fault := ""
			if i < len(faults) {
				fault = faults[i]
			}
			waits = append(waits, f.startLater(i, fault))
		}
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			f.t.Fatal(err)
		}
	}
}

// kill ends a replica as a power cut ends it.
func (f *fleet) kill(i int) {
	p := f.running[i]
	if p == nil {
		return
	}
	f.running[i] = nil
	_ = p.Process.Kill()
	_ = p.Wait()
	_ = p.stdin.Close()
	if f.t.Failed() {
		f.t.Logf("replica %d:\n%s", i, tail(p.log.String()))
	}
}

func tail(text string) string {
	const most = 4000
	return text[max(0, len(text)-most):]
}

// user is a client of a board, and knows what should be there.
type user struct {
	*board.Client
	t    *testing.T
	want []string
	// unsure are writes of which nobody said whether they were done.
	unsure []string
}

func (f *fleet) user(timeout time.Duration) *user {
	f.t.Helper()
	c, err := board.NewClient(board.ClientOptions{Reference: f.reference, Identity: someone(f.t), Timeout: timeout, Dial: f.dial})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return &user{Client: c, t: f.t}
}

// put puts a tuple, and says how long that took.
func (u *user) put(name string) (time.Duration, error) {
	begin := time.Now()
	_, err := u.Out(u.t.Context(), space.Tuple{space.String("test"), space.String(name)}, board.Put{Lease: time.Hour})
	if err != nil {
		u.unsure = append(u.unsure, name)
		return 0, err
	}
	u.want = append(u.want, name)
	return time.Since(begin), nil
}

func (u *user) mustPut(name string) time.Duration {
	u.t.Helper()
	took, err := u.put(name)
	if err != nil {
		u.t.Fatalf("put %s: %v", name, err)
	}
	return took
}

// putUntil tries until a write goes through, and says how long that took in all.
func (u *user) putUntil(name string, limit time.Duration) time.Duration {
	u.t.Helper()
	begin := time.Now()
	for i := 0; ; i++ {
		_, err := u.put(fmt.Sprintf("%s-%d", name, i))
		if err == nil {
			return time.Since(begin)
		}
		if time.Since(begin) > limit {
			u.t.Fatalf("for %v nothing could be written: %v", limit, err)
		}
	}
}

var everything = space.Template{space.String("test"), space.Any()}

// check compares what is there with what should be.
func (u *user) check() {
	u.t.Helper()
	entries, err := u.List(u.t.Context(), everything)
	if err != nil {
		u.t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		if name := e.Tuple()[1].Text(); !slices.Contains(u.unsure, name) {
			got = append(got, name)
		}
	}
	if !slices.Equal(got, u.want) {
		u.t.Fatalf("there is %v, and should be %v", got, u.want)
	}
}

func (u *user) take(name string) {
	u.t.Helper()
	template := space.Template{space.String("test"), space.String(name)}
	if e, err := u.Inp(u.t.Context(), template); err != nil || e.Tuple()[1].Text() != name {
		u.t.Fatalf("take %s: %v, %v", name, e, err)
	}
	u.want = slices.DeleteFunc(u.want, func(other string) bool { return other == name })
	if e, err := u.Rdp(u.t.Context(), template); !errors.Is(err, board.ErrNone) {
		u.t.Fatalf("%s was taken, and there is %v, %v", name, e, err)
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2].Round(time.Millisecond)
}

// logged says how often the replicas wrote something, once they did so least times or a minute has passed: what they wrote
// gets here by a pipe.
func (f *fleet) logged(text string, least int) (n int) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		n = 0
		for _, p := range f.running {
			if p != nil {
				n += strings.Count(p.log.String(), text)
			}
		}
		if n >= least || time.Now().After(end) {
			return n
		}
	}
}
