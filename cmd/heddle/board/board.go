// Package board is `heddle board`: to run a board, and to read and write what is on it.
package board

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heddle/board"
	"heddle/board/space"
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
		Long: `Board is a tuple space in the network, as Linda has it: whoever is let in puts
tuples (out), reads them (rd, rdp), takes them (in, inp), or puts one unless
there is one already (cas). Overlay nodes and devices register there.

A tuple's fields are written as they are for texts, and int:N, bytes:HEX and
bool:B for the rest. A template has as many fields as the tuples that it means;
? stands for anything, and ?string, ?int, ?bytes and ?bool for a type.

What it hides: what is said from the networks on the way, and a tuple from those
whom its author does not let read. What it does not: anything from those who run
the board. Tuples are signed: a board can withhold them, and cannot forge them.`,
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

// boardUser is what the flags of all commands that use a board say.
type boardUser struct {
	board, identity string
	timeout         time.Duration
	asJSON          bool
}

func (u *boardUser) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&u.board, "board", "", "the board, `KEY@HOST:PORT` or a file; else the one that heddle board use keeps")
	flags.StringVar(&u.identity, "identity", "", "the `FILE` of this device's private key")
	flags.DurationVar(&u.timeout, "timeout", 10*time.Second, "give up after so long, beside what is waited for a tuple")
	flags.BoolVar(&u.asJSON, "json", false, "print the answer as JSON")
	_ = cmd.MarkFlagFilename("identity")
}

func (u *boardUser) reference() (board.Reference, error) {
	if u.board != "" {
		r, err := board.LoadReference(u.board)
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

func (u *boardUser) client(stderr io.Writer) (*board.Client, error) {
	r, err := u.reference()
	if err != nil {
		return nil, err
	}
	id, err := identity.LoadOr(u.identity)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return board.NewClient(board.ClientOptions{Reference: r, Identity: id, Timeout: u.timeout, Log: log})
}

// with makes a command of what is done with a client.
func (u *boardUser) with(do func(cmd *cobra.Command, c *board.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := u.client(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return errors.Join(do(cmd, c, args), c.Close())
	}
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

// printEntry writes a tuple: its fields, quoted where a terminal or a shell could take them for something else.
func printEntry(w io.Writer, e space.Entry, asJSON bool) error {
	if asJSON {
		return cli.WriteJSON(w, entryOf(e))
	}
	_, err := fmt.Fprintln(w, tupleText(e.Tuple()))
	return err
}

func newListCommand() *cobra.Command {
	var u boardUser
	cmd := &cobra.Command{
		Use:   "list [FIELD...]",
		Short: "List the tuples that a template means",
		Long: `List prints the tuples that a template means and that this device may read, in
the order in which they came; without a template, all.`,
		Example: "  heddle board list\n  heddle board list job ?int --json",
		Args:    cobra.ArbitraryArgs,
	}
	u.addTo(cmd)
	cmd.RunE = u.with(func(cmd *cobra.Command, c *board.Client, args []string) error {
		template, err := fieldsOf(args, true)
		if err != nil {
			return err
		}
		entries, err := c.List(cmd.Context(), template)
		if err != nil {
			return err
		}
		if u.asJSON {
			all := make([]boardEntry, 0, len(entries))
			for _, e := range entries {
				all = append(all, entryOf(e))
			}
			return cli.WriteJSON(cmd.OutOrStdout(), all)
		}
		table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "TUPLE\tAUTHOR\tUNTIL\tID")
		for _, e := range entries {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", tupleText(e.Tuple()), e.Author().Short(), e.Until.Local().Format(time.DateTime), e.ID())
		}
		return table.Flush()
	})
	return cmd
}

func newStatusCommand() *cobra.Command {
	var u boardUser
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how each server of the board is",
		Long: `Status asks each server of the board how it is. It is each one's own word. The
command fails where more servers than may lie do not answer.`,
		Example: "  heddle board status\n  heddle board status --json",
		Args:    cobra.NoArgs,
	}
	u.addTo(cmd)
	cmd.RunE = u.with(func(cmd *cobra.Command, c *board.Client, _ []string) error {
		all := c.Status(cmd.Context())
		if u.asJSON {
			if err := cli.WriteJSON(cmd.OutOrStdout(), all); err != nil {
				return err
			}
		} else if err := printBoardStatus(cmd.OutOrStdout(), all); err != nil {
			return err
		}
		return enough(all, c.Faults)
	})
	return cmd
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
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SERVER\tKEY\tANSWERS\tTUPLES\tOF\tAUTHORS\tMEMBERS\tWAITING\tOPERATIONS\tCLOCK")
	for _, r := range all {
		if r.Status == nil {
			fmt.Fprintf(table, "%s\t%s\tno\n", r.Address, r.Key.Short())
			continue
		}
		s, members := r.Status, "all"
		if s.Members >= 0 {
			members = fmt.Sprint(s.Members)
		}
		fmt.Fprintf(table, "%s\t%s\t%v\t%d\t%d\t%d\t%s\t%d\t%d\t%s\n", r.Address, r.Key.Short(), r.RTT.Round(100*time.Microsecond),
			s.Tuples, s.Limits.Tuples, s.Authors, members, s.Waiting, s.Version, s.Now.UTC().Format(time.RFC3339))
	}
	return table.Flush()
}

// boardHome is where a board keeps its key and tuples, unless it is told.
func boardHome() (string, error) {
	file, err := identity.DefaultFile()
	return filepath.Join(filepath.Dir(file), "board"), err
}

// waited ends a context after a duration, unless that is 0.
func waited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}
