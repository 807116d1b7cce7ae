package board

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"heddle/board"
	"heddle/board/space"
	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/identity"
	"heddle/internal/text"
)

// boardRun holds the flags of `heddle board run`.
type boardRun struct {
	Listen  string `flag:"listen" help:"where clients come to, <[HOST]:PORT>, TCP"`
	Address string `flag:"address" help:"where clients find it from afar, <HOST:PORT>; else what it listens on"`
	State   string `flag:"state" help:"keep key and tuples in <DIR>" complete:"dir"`
	Members string `flag:"members" help:"the <FILE> of keys that are let in" complete:"file"`
	Open    bool   `flag:"open" help:"let in everybody"`
	limits  space.Limits
}

func newRunCommand() *cobra.Command {
	r := boardRun{Listen: ":7300", limits: space.DefaultLimits()}
	cmd := &cobra.Command{
		Use:   "run (--members FILE | --open)",
		Short: "Be a board, until interrupted",
		Long: `Run is a board of one server: a tuple space, over TLS 1.3 in which both sides
prove their keys. What it has answered is on the disk first.

It lets in who is in the --members file, a key a line; what follows the key is
for people. Members read all tuples, unless a tuple's author says otherwise, and
take their own. The file is read again some seconds after it changed, and at
once on SIGHUP; one that is wrong changes nothing, and the log says why. With
--open it lets in everybody who can reach it.

Beside its key and its tuples, --state holds board.json, which clients can use.

A board of one server can withhold tuples and show old ones until their leases
end. It cannot forge them. heddle-board-bft is a board of several servers, of
which some may lie.`,
		Example: `  heddle board run --members members
  heddle board run --listen 192.0.2.7:7300 --state /var/lib/heddle/board --members members`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}
	bind.Flags(cmd, &r)
	bind.Flags(cmd, &r.limits)
	cmd.MarkFlagsMutuallyExclusive("members", "open")
	cmd.MarkFlagsOneRequired("members", "open")
	return cmd
}

// run serves until the command's context ends.
func (r *boardRun) run(cmd *cobra.Command) error {
	state := r.State
	if state == "" {
		file, err := identity.DefaultFile()
		if err != nil {
			return err
		}
		state = filepath.Join(filepath.Dir(file), "board")
	}
	members := &board.Members{}
	if !r.Open {
		read, err := board.OpenMembers(r.Members)
		if err != nil {
			return cli.Usage(err)
		}
		members = read
	}
	id, _, err := identity.LoadOrCreate(filepath.Join(state, "identity.pem"))
	if err != nil {
		return err
	}
	stderr := cmd.ErrOrStderr()
	log := slog.New(slog.NewTextHandler(stderr, nil))
	local, err := board.Open(board.LocalOptions{File: filepath.Join(state, "board.db"), Key: id.Key(), Limits: r.limits, Members: members.Keys, Log: log})
	if err != nil {
		return err
	}
	listener, err := runner.Listen(cmd.Context(), "listen", r.Listen, false)
	if err != nil {
		return errors.Join(err, local.Close())
	}
	address := cmp.Or(r.Address, runner.Reachable(listener.Addr()))
	fmt.Fprintf(stderr, "board: listening on %v for %s; clients say: heddle board use %v@%s\n", listener.Addr(), whom(members.Keys), id.Key(), address)
	reference, err := board.ParseReference(id.Key().String() + "@" + address)
	if err != nil {
		return errors.Join(err, listener.Close(), local.Close())
	}
	if !r.Open {
		defer watchMembers(cmd.Context(), members, local, log)()
	}
	since := time.Now()
	status := func() control.Status {
		s, _ := local.Status(cmd.Context()) // a stopped board reports that itself
		return control.Status{Board: &control.Board{Listen: listener.Addr().String(), Since: since, Status: s}}
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	o := runner.Options{Name: "board-" + port, Taken: runner.GoUnseen, Talk: stderr}
	return runner.Run(cmd.Context(), o, func(ctx context.Context, run *runner.Runner) error {
		run.Show(status)
		// Written last: a reader of the file can reach the board, and sees it in heddle status.
		if err := reference.Save(filepath.Join(state, "board.json")); err != nil {
			return errors.Join(err, listener.Close(), local.Close())
		}
		return serveBoard(ctx, local, board.ServeOptions{Listener: listener, Identity: id, Backend: local, Member: local.Member, Log: log})
	})
}

// watchMembers applies changes of the members' file until stop.
func watchMembers(ctx context.Context, members *board.Members, local *board.Local, log *slog.Logger) (stop func()) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { members.Watch(ctx, again, local.SetMembers, log) })
	return func() {
		signal.Stop(again)
		cancel()
		watching.Wait()
	}
}

// serveBoard ends the server if the board ends, and vice versa.
func serveBoard(ctx context.Context, local *board.Local, o board.ServeOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- local.Run(ctx)
	}()
	err := board.Serve(ctx, o)
	cancel()
	return errors.Join(err, <-done)
}

func whom(members []identity.Key) string {
	if members == nil {
		return "everybody"
	}
	return text.Count(len(members), "member")
}
