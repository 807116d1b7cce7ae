package pseudonym

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/internal/atomicfile"
	"heddle/path"
	"heddle/pseudonym/cloud"
	"heddle/pseudonym/database"
)

func newStatsCommand() *cobra.Command {
	var f bind.Printing
	return bind.Flags(&cobra.Command{
		Use:   "stats FILE",
		Short: "Count the pseudonyms of a cloud's sites",
		Long: `Stats counts for each site the pseudonyms that are valid, that ended and that
were revoked, and the people who have a valid one. It names nobody.

The store does not see pages. "heddle status" at a site's sidecar shows what the
page defence costs there, and what each strategy would have cost.`,
		Example: "  heddle pseudonym stats cloud.toml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDatabase(cmd, args[0], func(ctx context.Context, db *database.DB) error {
				all, err := db.Stats(ctx, time.Now())
				if err != nil {
					return err
				}
				if f.JSON {
					return cli.WriteJSON(cmd.OutOrStdout(), all)
				}
				return cli.Table(cmd.OutOrStdout(), "SITE\tVALID\tENDED\tREVOKED\tPEOPLE", all, func(s database.SiteStats) []any {
					return []any{s.Site, s.Valid, s.Ended, s.Revoked, s.People}
				})
			})
		},
	}, &f)
}

func newBackupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE DIR",
		Short: "Copy a cloud's database and keys",
		Long: `Backup copies what a cloud needs to go on elsewhere into a new directory: the
file, the keys and certificates, and the database. A serve that runs goes on. To
restore, put the directory where the file was. The root's key is copied only if
it is there.

Encrypt the backup where you keep it: its holder can act as the cloud. A
database of PostgreSQL has its own program for this, pg_dump: then the keys are
copied alone.`,
		Example: "  heddle pseudonym backup /etc/heddle/cloud/cloud.toml /srv/backup/cloud-2026-11-24",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, dir := args[0], args[1]
			c, _, err := loadCloud(cmd, file)
			if err != nil {
				return err
			}
			if err := os.Mkdir(dir, 0o700); err != nil {
				return &path.Error{What: "the backup in " + dir, Why: "the directory cannot be made", Hint: "name one that is not there, in a directory that is", Err: err}
			}
			if err := copyKeys(c.Keys, dir); err != nil {
				return err
			}
			if err := copyFile(file, filepath.Join(dir, fileName)); err != nil {
				return err
			}
			if c.LoginSecret != "" {
				if err := copyFile(c.LoginSecret, filepath.Join(dir, filepath.Base(c.LoginSecret))); err != nil {
					return err
				}
			}
			return withDatabase(cmd, file, func(ctx context.Context, db *database.DB) error {
				err := db.Copy(ctx, filepath.Join(dir, filepath.Base(c.Database)))
				if errors.Is(err, database.ErrNoCopy) {
					fmt.Fprintf(cmd.ErrOrStderr(), "pseudonym: copied the keys to %s; copy the database with pg_dump\n", dir)
					return nil
				}
				return err
			})
		},
	}
}

// copyKeys copies the files of a cloud. Some may be elsewhere.
func copyKeys(from, to string) error {
	for _, name := range cloud.Files() {
		err := copyFile(filepath.Join(from, name), filepath.Join(to, name))
		if cloud.Optional(name) && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return atomicfile.CreatePrivate(to, content)
}
