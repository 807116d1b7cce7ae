// Package recv is `heddle recv`: it receives files from peers.
package recv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/runner"
	"heddle/cmd/heddle/send"
	"heddle/cmd/heddle/stream"
	"heddle/config"
	"heddle/identity"
	"heddle/stripe/transfer"
)

// receiving holds the flags of `heddle recv`.
type receiving struct {
	config.Recv
	Once bool `flag:"once" help:"end after the first transfer"`
	JSON bool `flag:"json" help:"print each transfer as a line of JSON"`
}

// Command is `heddle recv`.
func Command() *cobra.Command {
	r := receiving{Recv: config.DefaultRecv()}
	return bind.Flags(&cobra.Command{
		Use:   "recv --allow KEY... --into DIR",
		Short: "Receive files that peers send over several paths",
		Long: `Recv takes files from peers whose keys it knows, until interrupted, into one
directory, which nothing that arrives can leave. A file that is not whole is
NAME.part; it gets its name once the SHA-256 of the whole fits, and a part is
taken up again where it broke off.

A file that is there is never overwritten by one with another content, unless
--overwrite says so. Names that begin with a dot, which programs may read as
settings, are refused without --hidden.`,
		Example: `  heddle recv --into inbox --allow ed25519:KEY
  heddle recv --name photos --into photos --allow ed25519:KEY --max-bytes 10000000000 --once --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.Check(); err != nil {
				return cli.Usage(err)
			}
			return runRecv(cmd.Context(), r.Recv, r.Once, r.JSON, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}, &r)
}

// recvAnswer is one transfer in the output of `heddle recv --json`.
type recvAnswer struct {
	transfer.Report
	Peer  identity.Key `json:"peer"`
	Error string       `json:"error,omitempty"` // why it broke off
}

// runRecv receives until ctx ends, or with once, one transfer.
func runRecv(ctx context.Context, r config.Recv, once, asJSON bool, out, talk io.Writer) error {
	door, err := stream.OpenDoor(ctx, r.Admission, talk)
	if err != nil {
		return err
	}
	defer door.Close()
	var writing sync.Mutex
	var failed error
	r.Parts = &transfer.Parts{}
	body := func(ctx context.Context, run *runner.Runner) error {
		run.Show(door.Status("recv", r.Admission, r.Into))
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		door.Welcome(talk, r.Admission, "files into "+r.Into, "send FILE... "+r.Name)
		return stream.Accept(ctx, door, func(ctx context.Context, c stream.Session) {
			o := r.ReceiveOptions
			o.From = c.Peer().String()
			report, err := transfer.Receive(ctx, c, o)
			if err != nil {
				c.Abort("the receiver gave it up")
			} else {
				_ = c.Close() // the files have arrived, even if the sender does not learn it
			}
			writing.Lock()
			defer writing.Unlock()
			failure := printReceived(recvAnswer{Report: report, Peer: c.Peer()}, err, asJSON, out, talk)
			last := once && !errors.Is(err, transfer.ErrTakenOver) // else the newer one is
			if last {
				failure = errors.Join(failure, err)
			}
			failed = errors.Join(failed, failure)
			if last || failure != nil {
				stop()
			}
		})
	}
	err = runner.Run(ctx, runner.Options{Name: "recv-" + r.Name}, body)
	return errors.Join(err, failed)
}

// printReceived prints the result of one transfer.
func printReceived(a recvAnswer, broke error, asJSON bool, out, talk io.Writer) error {
	if broke != nil {
		a.Error = broke.Error()
	}
	if asJSON {
		if a.Files == nil {
			a.Files = []transfer.Result{}
		}
		return json.NewEncoder(out).Encode(a)
	}
	for _, f := range a.Files {
		if _, err := fmt.Fprintf(out, "%s, from %s\n", send.ResultLine(f), a.Peer.Short()); err != nil {
			return err
		}
	}
	if broke != nil {
		fmt.Fprintf(talk, "recv: the transfer from %s broke off: %v\n", a.Peer.Short(), broke)
	}
	return nil
}
