// Package board is `heddle board`: running a board, and reading and writing its tuples.
package board

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"heddle/board"
	"heddle/board/space"
	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/identity"
	"heddle/internal/text"
	"heddle/path"
)

// Command is `heddle board`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "board",
		Short: "Be a board where nodes and devices find each other, or use one",
		Long: `Board is a tuple space in the network, as in Linda. Members put tuples (out),
read them (rd, rdp), take them (in, inp), or put one unless a matching one
exists (cas). Overlay nodes and devices register there.

A field is plain text, int:N, bytes:HEX or bool:B. A template has as many fields
as the tuples that it matches: ? matches any value, and ?string, ?int, ?bytes
and ?bool match any value of the type.

The networks on the way see no content. Only members that the author of a tuple
permits can read it. The operators of the board see everything. Tuples are
signed: a board can withhold them, but not forge them.`,
		Example: `  heddle board run --members members
  heddle board use ed25519:KEY@board.example:7300
  heddle board out job int:7 --lease 1h
  heddle board in job ?int`,
	}
	cmd.AddCommand(newRunCommand(), newUseCommand(), newOutCommand(), newReadCommand("rd"), newReadCommand("rdp"),
		newReadCommand("in"), newReadCommand("inp"), newCasCommand(), newRenewCommand(), newRemoveCommand(),
		newListCommand(), newDirectoryCommand("nodes"), newDirectoryCommand("streams"), newStatusCommand())
	return cmd
}

// use is one use of a board: its flags, and the client while the command runs.
type use struct {
	Board    string        `flag:"board" help:"the board, <KEY@HOST:PORT> or a file; else the one that heddle board use keeps"`
	Identity string        `flag:"identity" help:"the <FILE> of this device's private key" complete:"file"`
	Timeout  time.Duration `flag:"timeout" help:"give up after so long, beside what is waited for a tuple"`
	JSON     bool          `flag:"json" help:"print the answer as JSON"`

	client *board.Client
	ctx    context.Context
	out    io.Writer
	talk   io.Writer
}

// using makes a command that calls do with a board.
func using(cmd *cobra.Command, do func(u *use, args []string) error) *cobra.Command {
	u := &use{Timeout: 10 * time.Second}
	bind.Flags(cmd, u)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		u.ctx, u.out, u.talk = cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		if err := u.connect(); err != nil {
			return err
		}
		return errors.Join(do(u, args), u.client.Close())
	}
	return cmd
}

func (u *use) connect() error {
	r, err := u.reference()
	if err != nil {
		return err
	}
	id, err := identity.LoadOr(u.Identity)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(u.talk, &slog.HandlerOptions{Level: slog.LevelWarn}))
	u.client, err = board.NewClient(board.ClientOptions{Reference: r, Identity: id, Timeout: u.Timeout, Log: log})
	return err
}

func (u *use) reference() (board.Reference, error) {
	if u.Board != "" {
		r, err := board.LoadReference(u.Board)
		if err != nil {
			return r, cli.Usage(err)
		}
		return r, nil
	}
	file, err := board.DefaultFile()
	if err != nil {
		return board.Reference{}, err
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return board.Reference{}, cli.Usage(&path.Error{What: "the board", Why: "none is named, and none is kept", Hint: "give --board, or `heddle board use` once"})
	}
	return board.LoadReference(file)
}

func newUseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "use KEY@HOST:PORT|FILE",
		Short: "Keep which board this user has",
		Long: `Use keeps a board with this user's settings, so that other commands need no
--board. A board of one server is KEY@HOST:PORT, as heddle board run prints it;
one of several is a JSON file, which its owner has. Neither is a secret.`,
		Example: "  heddle board use ed25519:KEY@board.example:7300\n  heddle board use board.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := board.LoadReference(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			file, err := board.DefaultFile()
			if err != nil {
				return err
			}
			if err := r.Save(file); err != nil {
				return &path.Error{What: "the board", Why: "cannot be kept in " + file, Err: err}
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s, of which %d may lie, in %s\n", text.Count(len(r.Replicas), "server"), r.Faults, file)
			return err
		},
	}
}

// boardEntry is a tuple as JSON.
type boardEntry struct {
	ID      space.ID       `json:"id"`
	Author  identity.Key   `json:"author"`
	Tuple   space.Tuple    `json:"tuple"`
	Until   time.Time      `json:"until"`
	Readers []identity.Key `json:"readers,omitempty"`
	Takers  []identity.Key `json:"takers,omitempty"`
}

func entryOf(e space.Entry) boardEntry {
	op := e.Op.Op()
	return boardEntry{e.ID(), e.Author(), e.Tuple(), e.Until, op.Readers, op.Takers}
}

// printEntry writes a tuple: its fields, quoted if a terminal or a shell could misread them.
func (u *use) printEntry(e space.Entry) error {
	if u.JSON {
		return cli.WriteJSON(u.out, entryOf(e))
	}
	_, err := fmt.Fprintln(u.out, tupleText(e.Tuple()))
	return err
}

func newListCommand() *cobra.Command {
	return using(&cobra.Command{
		Use:   "list [FIELD...]",
		Short: "List the tuples that a template means",
		Long: `List prints the tuples that a template means and that this device may read, in
the order in which they came; without a template, all.`,
		Example: "  heddle board list\n  heddle board list job ?int --json",
		Args:    cobra.ArbitraryArgs,
	}, func(u *use, args []string) error {
		template, err := fieldsOf(args, true)
		if err != nil {
			return err
		}
		entries, err := u.client.List(u.ctx, template)
		if err != nil {
			return err
		}
		if u.JSON {
			all := make([]boardEntry, 0, len(entries))
			for _, e := range entries {
				all = append(all, entryOf(e))
			}
			return cli.WriteJSON(u.out, all)
		}
		return cli.Table(u.out, "TUPLE\tAUTHOR\tUNTIL\tID", entries, func(e space.Entry) []any {
			return []any{tupleText(e.Tuple()), e.Author().Short(), e.Until.Local().Format(time.DateTime), e.ID()}
		})
	})
}

func newStatusCommand() *cobra.Command {
	return using(&cobra.Command{
		Use:   "status",
		Short: "Show how each server of the board is",
		Long: `Status asks each server of the board how it is. It is each one's own word. The
command fails where more servers than may lie do not answer.`,
		Example: "  heddle board status\n  heddle board status --json",
		Args:    cobra.NoArgs,
	}, func(u *use, _ []string) error {
		all := u.client.Status(u.ctx)
		printed := printBoardStatus
		if u.JSON {
			printed = func(w io.Writer, all []board.ReplicaStatus) error { return cli.WriteJSON(w, all) }
		}
		if err := printed(u.out, all); err != nil {
			return err
		}
		return enough(all, u.client.Faults)
	})
}

func enough(all []board.ReplicaStatus, faults int) error {
	var silent []error
	for _, r := range all {
		if r.Error != "" {
			silent = append(silent, errors.New(r.Error))
		}
	}
	if len(silent) <= faults {
		return nil
	}
	return fmt.Errorf("%d of %s do not answer: %w", len(silent), text.Count(len(all), "server"), errors.Join(silent...))
}

func printBoardStatus(w io.Writer, all []board.ReplicaStatus) error {
	const header = "SERVER\tKEY\tANSWERS\tTUPLES\tOF\tAUTHORS\tMEMBERS\tWAITING\tOPERATIONS\tCLOCK"
	return cli.Table(w, header, all, func(r board.ReplicaStatus) []any {
		s := r.Status
		if s == nil {
			return []any{r.Address, r.Key.Short(), "no"}
		}
		members := "all"
		if s.Members >= 0 {
			members = fmt.Sprint(s.Members)
		}
		return []any{r.Address, r.Key.Short(), r.RTT.Round(100 * time.Microsecond), s.Tuples, s.Limits.Tuples, s.Authors, members,
			s.Waiting, s.Version, s.Now.UTC().Format(time.RFC3339)}
	})
}
