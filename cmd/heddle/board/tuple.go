package board

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/board"
	"heddle/board/space"
	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/identity"
)

// fieldsOf parses a tuple or a template from arguments.
func fieldsOf(args []string, template bool) ([]space.Field, error) {
	var fields []space.Field
	for _, arg := range args {
		f, err := space.ParseField(arg)
		if err == nil && !template && !f.IsValue() {
			err = fmt.Errorf("%q stands for anything, and a tuple has values only", arg)
		}
		if err != nil {
			return nil, cli.Usage(cli.Hint(err, "a field is TEXT, int:N, bytes:HEX or bool:B; string:TEXT where TEXT looks like one of these"))
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// tupleText formats fields as arguments, quoted if they contain anything unusual.
func tupleText(t space.Tuple) string {
	words := make([]string, 0, len(t))
	for _, f := range t {
		text := f.String()
		if text == "" || strings.ContainsFunc(text, unusual) {
			text = strconv.Quote(text)
		}
		words = append(words, text)
	}
	return strings.Join(words, " ")
}

func unusual(r rune) bool { return !strconv.IsPrint(r) || strings.ContainsRune(" \"'\\", r) }

// putting holds the flags of commands that put a tuple.
type putting struct {
	Lease   time.Duration `flag:"lease" help:"how long the tuple stays, unless it is renewed"`
	Readers []string      `flag:"readers" help:"who may read it beside this device: a <KEY>, or none; else all who are let in"`
	Takers  []string      `flag:"takers" help:"who may take it beside this device: a <KEY>, or all; else nobody"`
}

// read returns the tuple and its access lists. "none" among the readers means only this device, whose key the board has.
func (p *putting) read(self identity.Key, args []string) (tuple space.Tuple, put board.Put, err error) {
	if tuple, err = fieldsOf(args, false); err != nil {
		return nil, put, err
	}
	put.Lease = p.Lease
	if put.Readers, err = keysOf(p.Readers, "none", self); err != nil {
		return nil, put, err
	}
	put.Takers, err = keysOf(p.Takers, "all", space.Anyone)
	return tuple, put, err
}

// keysOf parses keys. word stands for the key meant.
func keysOf(texts []string, word string, meant identity.Key) (keys []identity.Key, err error) {
	for _, text := range texts {
		key := meant
		if text != word {
			if key, err = identity.ParseKey(text); err != nil {
				return nil, cli.Usage(err)
			}
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func newOutCommand() *cobra.Command {
	p := putting{Lease: time.Hour}
	return bind.Flags(using(&cobra.Command{
		Use:   "out FIELD...",
		Short: "Put a tuple on the board",
		Long: `Out puts a tuple on the board and prints its name. It stays until its lease
ends, or until it is taken: by this device, and by those whom --takers names.`,
		Example: "  heddle board out job int:7 --takers all\n  heddle board out secret bytes:00ff --readers ed25519:KEY --lease 10m",
		Args:    cobra.MinimumNArgs(1),
	}, func(u *use, args []string) error {
		tuple, put, err := p.read(u.client.Identity.Key(), args)
		if err != nil {
			return err
		}
		id, err := u.client.Out(u.ctx, tuple, put)
		if err != nil {
			return err
		}
		return u.printID(id)
	}), &p)
}

func (u *use) printID(id space.ID) error {
	if u.JSON {
		return cli.WriteJSON(u.out, map[string]space.ID{"id": id})
	}
	_, err := fmt.Fprintln(u.out, id)
	return err
}

func newCasCommand() *cobra.Command {
	p := struct {
		putting
		Unless []string `flag:"unless" help:"a <FIELD> of the template, once for each"`
	}{putting: putting{Lease: time.Hour}}
	cmd := using(&cobra.Command{
		Use:   "cas --unless FIELD... FIELD...",
		Short: "Put a tuple, unless there is one that a template means",
		Long: `Cas puts a tuple and prints its name, unless there is one that the template of
--unless means; then it prints that one, and fails. Both are one step: of two
who try at once, one succeeds. --unless is given once for each field.`,
		Example: "  heddle board cas --unless lock --unless '?' lock here --lease 1m",
		Args:    cobra.MinimumNArgs(1),
	}, func(u *use, args []string) error {
		tuple, put, err := p.read(u.client.Identity.Key(), args)
		if err != nil {
			return err
		}
		template, err := fieldsOf(p.Unless, true)
		if err != nil {
			return err
		}
		id, other, done, err := u.client.Cas(u.ctx, template, tuple, put)
		switch {
		case err != nil:
			return err
		case done:
			return u.printID(id)
		case other == nil:
			return errors.New("there is such a tuple, which this device may not read")
		}
		return errors.Join(u.printEntry(*other), fmt.Errorf("there is such a tuple, of %v", other.Author()))
	})
	bind.Flags(cmd, &p)
	_ = cmd.MarkFlagRequired("unless")
	return cmd
}

// The commands that return one tuple.
var boardReads = map[string]struct {
	short, long string
	waits       bool
	do          func(*board.Client, context.Context, space.Template) (space.Entry, error)
}{
	"rd":  {"Read a tuple, and wait until there is one", "Rd prints the oldest tuple that the template means and that this device may\nread. Without one it waits.", true, (*board.Client).Rd},
	"rdp": {"Read a tuple, if there is one", "Rdp prints the oldest tuple that the template means and that this device may\nread. Without one it fails.", false, (*board.Client).Rdp},
	"in":  {"Take a tuple, and wait until there is one", "In removes the oldest tuple that matches the template and that this device may\ntake, and prints it. It waits until there is one. The board serves waiting\ndevices in the order of their requests.", true, (*board.Client).In},
	"inp": {"Take a tuple, if there is one", "Inp removes the oldest tuple that the template means and that this device may\ntake, and prints it. Without one it fails.", false, (*board.Client).Inp},
}

func newReadCommand(name string) *cobra.Command {
	var f struct {
		Wait time.Duration `flag:"wait" help:"wait no longer than this; 0 is for ever"`
	}
	read := boardReads[name]
	cmd := using(&cobra.Command{
		Use:     name + " FIELD...",
		Short:   read.short,
		Long:    read.long,
		Example: fmt.Sprintf("  heddle board %s job ?int\n  heddle board %s job '?' --json", name, name),
		Args:    cobra.MinimumNArgs(1),
	}, func(u *use, args []string) error {
		template, err := fieldsOf(args, true)
		if err != nil {
			return err
		}
		ctx := u.ctx
		if f.Wait > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, f.Wait)
			defer cancel()
		}
		e, err := read.do(u.client, ctx, template)
		if err != nil && err == ctx.Err() && u.ctx.Err() == nil {
			return fmt.Errorf("%s: no such tuple came in %v", name, f.Wait)
		}
		if err != nil {
			return err
		}
		return u.printEntry(e)
	})
	if read.waits {
		bind.Flags(cmd, &f)
	}
	return cmd
}

func newRenewCommand() *cobra.Command {
	f := struct {
		Lease time.Duration `flag:"lease" help:"how long it stays from now on"`
	}{time.Hour}
	return bind.Flags(using(&cobra.Command{
		Use:     "renew ID",
		Short:   "Give a tuple of this device's own a new lease",
		Long:    "Renew lets a tuple that this device put stay for --lease from now on.",
		Example: "  heddle board renew 6a09…e667 --lease 1h",
		Args:    cobra.ExactArgs(1),
	}, byID(func(u *use, id space.ID) error { return u.client.Renew(u.ctx, id, f.Lease) })), &f)
}

func newRemoveCommand() *cobra.Command {
	return using(&cobra.Command{
		Use:     "remove ID",
		Short:   "Remove a tuple by its name",
		Long:    "Remove takes a tuple off the board: one of this device's own, or one that it may\ntake.",
		Example: "  heddle board remove 6a09…e667",
		Args:    cobra.ExactArgs(1),
	}, byID(func(u *use, id space.ID) error { return u.client.Remove(u.ctx, id) }))
}

// byID returns a use for a command on the tuple with one id.
func byID(do func(*use, space.ID) error) func(*use, []string) error {
	return func(u *use, args []string) error {
		id, err := space.ParseID(args[0])
		if err != nil {
			return cli.Usage(err)
		}
		return do(u, id)
	}
}
