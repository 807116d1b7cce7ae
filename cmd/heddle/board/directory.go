package board

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/board/registry"
	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/internal/text"
)

func newDirectoryCommand(what string) *cobra.Command {
	f := struct {
		MaxAge time.Duration `flag:"max-age" help:"how old the list of the last time may be"`
	}{registry.DefaultMaxAge}
	return bind.Flags(using(&cobra.Command{
		Use:   what,
		Short: fmt.Sprintf("List the %s that are registered", what),
		Long: fmt.Sprintf(`List the %s that are registered on the board. Each is signed by its own
key; what is not is left out and counted.

Where the board cannot be reached, the list is that of the last time, with its
age, unless it is older than --max-age. Names are for people: where several keys
have one name, both are listed, and only a key says which is meant.`, what),
		Example: fmt.Sprintf("  heddle board %s\n  heddle board %s --max-age 1h --json", what, what),
		Args:    cobra.NoArgs,
	}, func(u *use, _ []string) error {
		cache, err := registry.DefaultCache(u.client.Space, f.MaxAge)
		if err != nil {
			return err
		}
		d, err := cache.Load(u.ctx, u.client)
		if err != nil {
			return err
		}
		SayOfDirectory(u.talk, d)
		switch {
		case u.JSON:
			answer := map[string]any{"ignored": d.Ignored, "read": d.Read, "cached": d.Cached, "nodes": d.Nodes}
			if what == "streams" {
				delete(answer, "nodes")
				answer["streams"] = d.Streams
			}
			return cli.WriteJSON(u.out, answer)
		case what == "nodes":
			return printNodes(u.out, d.Nodes)
		}
		return printStreams(u.out, d.Streams)
	}), &f)
}

// SayOfDirectory prints what a user must know about a list before using it.
func SayOfDirectory(w io.Writer, d registry.Directory) {
	if d.Cached != "" {
		fmt.Fprintf(w, "board: this list is of %s (%s), since %s\n", cli.Span(time.Since(d.Read))+" ago", d.Read.Local().Format(time.DateTime), d.Cached)
	}
	if d.Ignored > 0 {
		fmt.Fprintf(w, "board: %s left out, since the key that they name did not sign them, or they are not as they should be\n", text.Count(d.Ignored, "registration"))
	}
	for _, name := range d.Shared() {
		fmt.Fprintf(w, "board: several keys are registered as %s: give the key instead\n", name)
	}
}

func printNodes(w io.Writer, nodes []registry.Node) error {
	return cli.Table(w, "NAME\tADDRESSES\tMODES\tASN\tUNTIL\tKEY", nodes, func(n registry.Node) []any {
		asn := "-"
		if n.ASN != 0 {
			asn = fmt.Sprint(n.ASN)
		}
		return []any{n.Name, strings.Join(n.Addresses, ","), strings.Join(n.Modes, ","), asn, n.Until.Local().Format(time.DateTime), n.Key}
	})
}

func printStreams(w io.Writer, streams []registry.Stream) error {
	return cli.Table(w, "NAME\tADDRESSES\tUNTIL\tKEY", streams, func(s registry.Stream) []any {
		return []any{s.Name, strings.Join(s.Addresses, ","), s.Until.Local().Format(time.DateTime), s.Key}
	})
}
