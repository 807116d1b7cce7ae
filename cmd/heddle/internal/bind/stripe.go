package bind

import (
	"strings"

	"github.com/spf13/cobra"

	"heddle/config"
)

// Stripe gives a command the flags that say over which paths a stream goes and how it is cut. What s holds is the
// default.
func Stripe(cmd *cobra.Command, s *config.Stripe) {
	flags := cmd.Flags()
	flags.StringArrayVar(&s.Via, "via", s.Via, "a path, `NAME=KIND:ARG`, such as a=node:tokyo; one flag a path")
	flags.StringArrayVar(&s.Path, "path", s.Path, "a path beside them, `NAME=KIND:ARG`, for tunnels to ride")
	flags.StringArrayVar(&s.Secret, "secret", s.Secret, "the file that holds the password or token of a path, `NAME=FILE`")
	flags.IntVar(&s.Paths, "paths", s.Paths, "choose so many overlay nodes in place of --via; they ride the --path ones in turn")
	flags.StringVar(&s.Pick, "pick", s.Pick, "how nodes are chosen: "+strings.Join(config.Picks(), ", "))
	flags.StringVar(&s.To, "to", s.To, "where the peer device listens, `HOST:PORT`; else the board says")
	flags.StringVar(&s.Key, "key", s.Key, "the `KEY` of the peer device; else the board says")
	flags.StringVar(&s.Board, "board", s.Board, "the board, `KEY@HOST:PORT` or a file; else the one that heddle board use keeps")
	flags.DurationVar(&s.MaxAge, "max-age", s.MaxAge, "how old the board's last list may be where the board cannot be reached")
	flags.StringVar(&s.Identity, "identity", s.Identity, "the `FILE` of this device's private key")
	flags.StringVar(&s.Schedule, "schedule", s.Schedule, "which path is next: strict (each in turn), fast (who has room), weighted")
	flags.StringArrayVar(&s.Weight, "weight", s.Weight, "for --schedule weighted, `NAME=NUMBER`; drawn at random where none is given")
	flags.IntVar(&s.Segment, "segment", s.Segment, "the size of a segment in bytes")
	flags.StringVar(&s.Shares, "shares", s.Shares, "cut into secret shares: none, 2of3, shamir:2of3, xor:3")
	flags.IntVar(&s.MinPaths, "min-paths", s.MinPaths, "paths it takes to send at all; 0 means all, or as many as restore shares")
	flags.BoolVar(&s.Degrade, "degrade", s.Degrade, "go on over fewer paths, also with what a dead one did not carry")
	flags.DurationVar(&s.Patience, "patience", s.Patience, "how long to wait for paths that are needed")
	flags.IntVar(&s.MinRate, "min-rate", s.MinRate, "drop a path below so many bytes per second; -1 never does")
	flags.StringVar(&s.Keylog, "keylog", s.Keylog, "write the keys of the TLS inside to `FILE`, for experiments")
	flags.StringVar(&s.Plane, "plane", s.Plane, "who carries it: "+strings.Join(config.StripePlanes(), ", "))
	flags.BoolVar(&s.SetPathManager, "set-path-manager", s.SetPathManager, "for mptcp, set net.mptcp.pm_type while a socket is made")
	_ = cmd.RegisterFlagCompletionFunc("plane", cobra.FixedCompletions(config.StripePlanes(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("pick", cobra.FixedCompletions(config.Picks(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("schedule", cobra.FixedCompletions(config.StripeSchedules(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("shares", cobra.FixedCompletions([]string{"none", "2of3", "3of4", "shamir:2of3", "xor:3"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("via", CompleteVia)
	_ = cmd.RegisterFlagCompletionFunc("path", CompleteVia)
	_ = cmd.MarkFlagFilename("identity")
	_ = cmd.MarkFlagFilename("keylog")
}

// Admission gives a command the flags that say who may come to this device, and where.
func Admission(cmd *cobra.Command, a *config.Admission) {
	flags := cmd.Flags()
	flags.StringVar(&a.Name, "name", a.Name, "what peers ask for, a `NAME`")
	flags.StringVar(&a.Listen, "listen", a.Listen, "where peers come to, `[HOST]:PORT`")
	flags.StringArrayVar(&a.Allow, "allow", a.Allow, "let in the holder of this `KEY`; any lets in everybody")
	flags.StringVar(&a.Identity, "identity", a.Identity, "the `FILE` of this device's private key")
	flags.StringVar(&a.Plane, "plane", a.Plane, "how peers come: stripe, or mptcp for the kernel's planes")
	flags.StringVar(&a.Board, "board", a.Board, "register there: the board, `KEY@HOST:PORT` or a file")
	flags.StringArrayVar(&a.Address, "address", a.Address, "where peers reach this device, `HOST:PORT`, for the board")
	flags.IntVar(&a.MaxSessions, "max-sessions", a.MaxSessions, "how many sessions are served at one time")
	flags.StringVar(&a.Keylog, "keylog", a.Keylog, "write the keys of the TLS inside to `FILE`, for experiments")
	_ = cmd.MarkFlagFilename("identity")
	_ = cmd.MarkFlagFilename("keylog")
}

// Config gives a command the flag that names a heddle.toml.
func Config(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "config", "", "a heddle.toml, `FILE`, whose table says what flags leave open")
	_ = cmd.MarkFlagFilename("config", "toml")
}
