// Package send is `heddle send`: it sends files over several paths.
package send

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/cmd/heddle/stream"
	"heddle/config"
	"heddle/internal/netutil"
	"heddle/internal/text"
	"heddle/path"
	"heddle/stripe"
	"heddle/stripe/transfer"
)

// sending holds the flags of `heddle send`.
type sending struct {
	config.Stripe
	service string
	Tries   int  `flag:"tries" help:"how often to dial, where a transfer breaks off"`
	DryRun  bool `flag:"dry-run" help:"ask what the receiver would take, and send nothing"`
	Quiet   bool `flag:"quiet" short:"q" help:"show no progress"`
	JSON    bool `flag:"json" help:"print what became of each file as JSON"`
}

// Command is `heddle send`.
func Command() *cobra.Command {
	s := sending{Stripe: config.DefaultStripe(), Tries: 5}
	return bind.Flags(&cobra.Command{
		Use:   "send FILE... NAME --to HOST:PORT --key KEY --via NAME=KIND:ARG...",
		Short: "Send files over several paths at once",
		Long: `Send sends files and directories to a peer that receives under NAME, over
several paths at once. Of a directory it sends all files below; links are left
out.

It can be interrupted on either side: the same command goes on where it broke
off, and does so by itself, --tries times. The receiver gives a file its name
only once the SHA-256 of the whole fits, and keeps NAME.part until then. What is
there already with the same content is not sent again; a file that is there with
another content is refused, unless the receiver says otherwise.

On a terminal it shows what each path carries. It fails if a file did not
arrive. It hides what heddle stream dial hides, and prints that. Names, sizes
and times of files are inside the stream.`,
		Example: `  heddle send photo.raw documents/ files --to files.example:4471 --key ed25519:KEY --via a=node:tokyo --via b=node:paris --via c=node:oslo --shares 2of3
  heddle send backup.tar files --to 192.0.2.1:4471 --key ed25519:KEY --via home=if:eth0 --via lte=if:wwan0 --dry-run`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.service = args[len(args)-1]
			s.KeptBoard()
			if err := s.check(); err != nil {
				return cli.Usage(err)
			}
			files, skipped, err := transfer.Collect(args[:len(args)-1])
			if err != nil {
				return cli.Usage(err)
			}
			for _, text := range skipped {
				fmt.Fprintln(cmd.ErrOrStderr(), "send: left out:", text)
			}
			if len(files) == 0 {
				return cli.Usage(&path.Error{What: "send", Why: "there is no file in what was named", Hint: "empty directories are not sent"})
			}
			return runSend(cmd.Context(), s, files, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}, &s)
}

func (s sending) check() error {
	if err := config.CheckSessionName(s.service); err != nil {
		if _, there := os.Stat(s.service); there == nil {
			return &path.Error{What: "send", Why: fmt.Sprintf("the last word is the name of the service, and %q is a file", s.service), Hint: "add the NAME that the peer receives under"}
		}
		return err
	}
	if s.Tries < 1 {
		return &path.Error{What: "--tries", Why: fmt.Sprintf("%d is less than 1", s.Tries), Hint: "1 does not try again"}
	}
	return s.Check()
}

// sendAnswer is the output of `heddle send --json`.
type sendAnswer struct {
	transfer.Report
	Seconds float64        `json:"seconds"`
	Tries   int            `json:"tries"`
	Session *stripe.Status `json:"session,omitempty"` // the last one, at its end
}

// runSend sends files, and retries when the connection breaks.
func runSend(ctx context.Context, s sending, files []transfer.File, out, talk io.Writer) error {
	keylog, closeKeylog, err := stream.OpenKeylog(s.Keylog, talk)
	if err != nil {
		return err
	}
	defer closeKeylog()
	dialer, err := stream.NewDialer(ctx, s.Stripe, s.service, keylog, talk)
	if err != nil {
		return err
	}
	j := &sendJob{sending: s, dialer: dialer, files: files, talk: talk, began: time.Now()}
	name := "send-" + s.service + "-" + strconv.Itoa(os.Getpid())
	err = runner.Run(ctx, runner.Options{Name: name}, j.run)
	if errors.Is(err, context.Canceled) {
		err = &path.Error{What: "send", Why: "it was interrupted", Hint: "the same command goes on where it broke off"}
	}
	if s.JSON {
		err = errors.Join(cli.WriteJSON(out, j.answer()), err)
	} else if err == nil || len(j.report.Files) > 0 {
		err = errors.Join(j.print(out), err)
	}
	if err == nil && !s.DryRun && j.report.Missing() > 0 {
		err = &path.Error{What: "send", Why: fmt.Sprintf("%d of %s did not arrive", j.report.Missing(), text.Count(len(j.report.Files), "file")),
			Hint: "the list says why of each"}
	}
	return err
}

// sendJob is one run of `heddle send`.
type sendJob struct {
	sending
	dialer *stream.Dialer
	files  []transfer.File
	talk   io.Writer
	began  time.Time
	report transfer.Report
	count  int

	mu   sync.Mutex
	conn stream.Session // nil before the first dial
}

func (j *sendJob) current() stream.Session {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.conn
}

func (j *sendJob) status() control.Status {
	s := &control.Stream{Role: "send", Service: j.service, To: j.dialer.To(), Since: j.began, Sessions: []stripe.Status{}}
	if c := j.current(); c != nil {
		s.Sessions = append(s.Sessions, c.Status())
	}
	return control.Status{Stream: s}
}

const tryAgainAfter = 2 * time.Second

func (j *sendJob) run(ctx context.Context, r *runner.Runner) error {
	r.Show(j.status)
	var bytes int64
	for {
		j.count++
		err := j.once(ctx)
		bytes += j.report.Bytes
		j.report.Bytes = bytes
		_, gaveUp := errors.AsType[*transfer.StoppedError](err)
		if err == nil || ctx.Err() != nil || gaveUp || errors.Is(err, transfer.ErrNotSpoken) || j.current() == nil || j.count >= j.Tries {
			return err
		}
		fmt.Fprintf(j.talk, "send: broken off: %v; trying again\n", err)
		if err := netutil.Sleep(ctx, tryAgainAfter); err != nil {
			return err
		}
	}
}

// once sends over one session.
func (j *sendJob) once(ctx context.Context) error {
	c, err := j.dialer.Dial(ctx)
	if err != nil {
		return err
	}
	if j.current() == nil {
		j.dialer.PrintClaim(j.talk, c.Status())
	}
	j.mu.Lock()
	j.conn = c
	j.mu.Unlock()
	show := newProgress(j.talk, c.Status, j.Quiet || j.DryRun)
	report, err := transfer.Send(ctx, c, j.files, transfer.SendOptions{DryRun: j.DryRun, Progress: show.update})
	show.end() // before the paths go down at the end of the session
	if err != nil {
		c.Abort("the transfer broke off")
		_ = c.Close() // waits until the receiver heard it: the end of this process would cut it off
	} else {
		err = c.Close()
	}
	j.report = report
	return err
}

func (j *sendJob) answer() sendAnswer {
	a := sendAnswer{Report: j.report, Seconds: time.Since(j.began).Seconds(), Tries: j.count}
	if a.Files == nil {
		a.Files = []transfer.Result{}
	}
	if c := j.current(); c != nil {
		s := c.Status()
		a.Session = &s
	}
	return a
}

// print lists the result of each file.
func (j *sendJob) print(out io.Writer) error {
	for _, f := range j.report.Files {
		if _, err := fmt.Fprintln(out, ResultLine(f)); err != nil {
			return err
		}
	}
	return nil
}

// ResultLine describes one file of a transfer in a line.
func ResultLine(f transfer.Result) string {
	line := fmt.Sprintf("%s  %s  %s", f.State, f.Name, text.Size(uint64(f.Size)))
	if f.Resumed > 0 {
		line += fmt.Sprintf(", %s of it were there", text.Size(uint64(f.Resumed)))
	}
	if f.Why != "" {
		line += ": " + f.Why
	}
	return line
}
