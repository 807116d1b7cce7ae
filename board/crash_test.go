package board

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/board/space"
	"heddle/identity"
)

// childDir is where the board that this test binary becomes keeps its state.
const childDir = "HEDDLE_TEST_BOARD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Fprintln(os.Stderr, beBoard(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// beBoard serves until it is killed.
func beBoard(dir string) error {
	id, _, err := identity.LoadOrCreate(filepath.Join(dir, "identity.pem"))
	if err != nil {
		return err
	}
	limits := space.DefaultLimits()
	limits.AuthorOps = 1_000_000 // benchmarks are quick
	local, err := Open(LocalOptions{File: filepath.Join(dir, "board.db"), Key: id.Key(), Limits: limits, Log: quiet})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = local.Run(context.Background()) }()
	fmt.Printf("%v@%v\n", id.Key(), listener.Addr())
	return Serve(context.Background(), ServeOptions{Listener: listener, Identity: id, Backend: local, Member: local.Member, Log: quiet})
}

// start runs a board as a process of its own.
func start(t testing.TB, dir string) (Reference, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), childDir+"="+dir), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseReference(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return r, cmd
}

func TestWhatWasAcknowledgedOutlivesKill(t *testing.T) {
	dir, who := t.TempDir(), fresh(t)
	acknowledged, taken := map[int64]bool{}, map[int64]bool{}
	var next int64
	var last space.SignedOp
	var answered []byte
	for round := range 4 {
		reference, process := start(t, dir)
		c := client(t, reference, who)
		check(t, c, round, acknowledged, taken)
		if round > 0 { // what was answered before the crash is answered so again, and not done again
			raw, err := c.remotes[0].result(t.Context(), applyPath, 0, last.Bytes())
			if err != nil || !bytes.Equal(raw, answered) {
				t.Errorf("round %d: asked again after the crash: %v", round, err)
			}
		}
		var err error
		op := space.Op{Verb: space.Out, Space: reference.Space, Lease: time.Hour, Tuple: space.Tuple{space.String("last"), space.Int(int64(round))}}
		if last, err = op.Sign(who, time.Now()); err != nil {
			t.Fatal(err)
		}
		if answered, err = c.remotes[0].result(t.Context(), applyPath, 0, last.Bytes()); err != nil {
			t.Fatal(err)
		}
		next = work(t, reference, who, process, next, acknowledged, taken)
	}
	reference, _ := start(t, dir)
	check(t, client(t, reference, who), 4, acknowledged, taken)
	if len(acknowledged) < 20 || len(taken) == 0 {
		t.Errorf("only %d put and %d taken: nothing is proved", len(acknowledged), len(taken))
	}
}

// work puts and takes from several clients at once, and kills the board in the middle of it.
func work(t *testing.T, r Reference, who identity.Identity, process *exec.Cmd, next int64, acknowledged, taken map[int64]bool) int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	done, end := 0, next
	for n := range int64(4) {
		c := client(t, r, who)
		first := next + n*1_000_000
		end = max(end, first+1_000_000)
		all.Go(func() {
			for i := first; ; i++ {
				if _, err := c.Out(ctx, space.Tuple{space.String("n"), space.Int(i)}, Put{Lease: time.Hour}); err != nil {
					return // it was killed
				}
				mu.Lock()
				acknowledged[i] = true
				done++
				enough := done == 30
				mu.Unlock()
				if enough {
					_ = process.Process.Kill()
					cancel()
				}
				if i%3 != 0 {
					continue
				}
				e, err := c.Inp(ctx, space.Template{space.String("n"), space.Int(i)})
				mu.Lock()
				if err == nil {
					taken[e.Tuple()[1].Int()] = true
				} else {
					delete(acknowledged, i) // it may be gone, or not
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	_ = process.Wait()
	return end
}

func check(t *testing.T, c *Client, round int, acknowledged, taken map[int64]bool) {
	t.Helper()
	entries, err := c.List(t.Context(), space.Template{space.String("n"), space.AnyOf(space.TypeInt)})
	if err != nil {
		t.Fatal(err)
	}
	there := map[int64]bool{}
	for _, e := range entries {
		n := e.Tuple()[1].Int()
		if there[n] {
			t.Errorf("round %d: %d is there twice", round, n)
		}
		there[n] = true
	}
	for n := range acknowledged {
		if there[n] == taken[n] {
			t.Errorf("round %d: %d was acknowledged, taken %v, and is there: %v", round, n, taken[n], there[n])
		}
	}
}
