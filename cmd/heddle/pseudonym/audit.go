package pseudonym

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/internal/text"
	"heddle/path"
	"heddle/pseudonym/audit"
)

func newAuditCommand() *cobra.Command {
	var f struct {
		bind.Printing
		Since time.Duration `flag:"since" help:"show the last <TIME> only, such as 24h"`
	}
	return bind.Flags(&cobra.Command{
		Use:   "audit FILE",
		Short: "Show what happened at a cloud, without names",
		Long: `Audit prints the log of this machine: in each minute how many pseudonyms were
registered, renewed and revoked, and how many requests were refused and why;
when the store began and ended; and which tenants were added and removed. It
says of no user which site she uses, when she came, or from where.

The log is in the file that audit = in FILE names. It has 80 MB at most, the
oldest lines go first. A store on another machine has a log of its own.`,
		Example: `  heddle pseudonym audit cloud.toml
  heddle pseudonym audit cloud.toml --since 24h --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, o, err := loadCloud(cmd, args[0])
			if err != nil {
				return err
			}
			if o.Audit == "" {
				return &path.Error{What: "the audit log", Why: "there is none", Hint: `set audit = "audit.log" in ` + args[0]}
			}
			var from time.Time
			if f.Since > 0 {
				from = time.Now().Add(-f.Since)
			}
			all := []audit.Line{}
			damaged, err := audit.Read(o.Audit, from, func(l audit.Line) error {
				all = append(all, l)
				return nil
			})
			if err != nil {
				return err
			}
			if damaged > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "pseudonym: left out %s that cannot be read\n", text.About(damaged, "line"))
			}
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), all)
			}
			return cli.Table(cmd.OutOrStdout(), "TIME\tEVENT\tCOUNT\tSITE", all, func(l audit.Line) []any {
				return []any{l.Time.Local().Format("2006-01-02 15:04"), l.Event, l.Count, l.Site}
			})
		},
	}, &f)
}
