package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"heddle/board/bft"
	"heddle/board/space"
	"heddle/identity"
	"heddle/path"
)

func newInitCommand() *cobra.Command {
	plan := bft.Plan{Limits: space.DefaultLimits()}
	var replicas int
	var members []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the keys and the first block of a new board",
		Long: `Init makes a home for each replica, DIR/0, DIR/1 and so on, with keys of its
own, and DIR/board.json, which clients need: heddle board use board.json. It
holds no secret. Carry each home to its machine, and leave it nowhere else:
whoever has more than f of them can make the board lie.

The machines' clocks must be right within half a second.`,
		Example: `  heddle-board-bft init --dir board --hosts a.example,b.example,c.example,d.example
  heddle-board-bft init --dir try --replicas 4    # all on this machine`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if plan.Hosts == nil {
				for range replicas {
					plan.Hosts = append(plan.Hosts, "127.0.0.1")
				}
			} else if cmd.Flags().Changed("replicas") && len(plan.Hosts) != replicas {
				return usageError{&path.Error{What: "--hosts", Why: fmt.Sprintf("names %d machines for %d replicas", len(plan.Hosts), replicas), Hint: "name one for each"}}
			}
			for _, text := range members {
				key, err := identity.ParseKey(text)
				if err != nil {
					return usageError{&path.Error{What: "--member", Why: err.Error(), Hint: "heddle node key prints one"}}
				}
				plan.Members = append(plan.Members, key)
			}
			reference, err := bft.Create(plan)
			if err != nil {
				return err
			}
			file := filepath.Join(plan.Dir, "board.json")
			if err := reference.Save(file); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if asJSON {
				return json.NewEncoder(out).Encode(reference)
			}
			for i, r := range reference.Replicas {
				fmt.Fprintf(out, "%s\t%s\t%s\n", filepath.Join(plan.Dir, fmt.Sprint(i)), r.Address, r.Key)
			}
			fmt.Fprintf(out, "%s\tfor clients; %d of %d replicas may lie\n", file, reference.Faults, len(reference.Replicas))
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&plan.Dir, "dir", "", "put the homes into this `DIRECTORY`")
	flags.IntVar(&replicas, "replicas", 4, "how many: 3f+1, so that f may lie")
	flags.StringSliceVar(&plan.Hosts, "hosts", nil, "the `HOSTS` of the replicas, names or addresses; this machine where none is given")
	flags.IntVar(&plan.Port, "port", 7300, "where clients come; counted up for replicas on one host")
	flags.IntVar(&plan.PeerPort, "peer-port", 7400, "where replicas come; counted up for replicas on one host")
	flags.StringArrayVar(&members, "member", nil, "let this `KEY` in, and nobody who is not named; everybody where none is")
	flags.DurationVar(&plan.Limits.Lease, "max-lease", plan.Limits.Lease, "the longest lease of a tuple")
	flags.IntVar(&plan.Limits.Op, "max-op", plan.Limits.Op, "the largest operation, in bytes")
	flags.IntVar(&plan.Limits.Tuples, "max-tuples", plan.Limits.Tuples, "how many tuples the board takes")
	flags.Int64Var(&plan.Limits.Bytes, "max-bytes", plan.Limits.Bytes, "how many bytes the board takes")
	flags.IntVar(&plan.Limits.AuthorTuples, "author-tuples", plan.Limits.AuthorTuples, "how many tuples one author may have")
	flags.Int64Var(&plan.Limits.AuthorBytes, "author-bytes", plan.Limits.AuthorBytes, "how many bytes one author may have")
	flags.BoolVar(&asJSON, "json", false, "print what clients need, as JSON")
	_ = cmd.MarkFlagRequired("dir")
	_ = cmd.MarkFlagDirname("dir")
	_ = cmd.RegisterFlagCompletionFunc("replicas", cobra.FixedCompletions([]string{"4", "7", "10"}, cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"hosts", "member"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return cmd
}
