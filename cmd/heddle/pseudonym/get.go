package pseudonym

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/identity"
	"heddle/path"
	"heddle/pseudonym"
	"heddle/pseudonym/client"
	"heddle/pseudonym/store"
)

// userFlags are those of the commands of users.
type userFlags struct {
	Zone    string `flag:"zone" help:"the cloud's <DOMAIN>; not needed if you have pseudonyms of one cloud only"`
	Root    string `flag:"root" help:"trust the cloud's root certificate in <FILE>, for the first pseudonym" complete:"file"`
	Connect string `flag:"connect" help:"reach the store at <HOST:PORT>, whatever DNS says"`
	JSON    bool   `flag:"json" help:"print JSON"`

	stdin  io.Reader
	stderr io.Writer
}

// homeDir holds a directory for each zone.
func homeDir() (string, error) {
	file, err := identity.DefaultFile()
	return filepath.Join(filepath.Dir(file), "pseudonyms"), err
}

// open returns the client of the zone that the flags name, or of the only one that there is.
func (f *userFlags) open() (*client.Client, string, error) {
	home, err := homeDir()
	if err != nil {
		return nil, "", err
	}
	if f.Zone == "" {
		found, _ := filepath.Glob(filepath.Join(home, "*"))
		if len(found) != 1 {
			return nil, "", cli.Usage(&path.Error{What: "--zone", Why: fmt.Sprintf("you have pseudonyms of %d clouds", len(found)), Hint: "name the cloud, such as --zone cloud.example"})
		}
		f.Zone = filepath.Base(found[0])
	}
	zone, err := pseudonym.ParseZone(f.Zone)
	if err != nil {
		return nil, "", cli.Usage(err)
	}
	o := client.Options{Zone: zone, Connect: f.Connect, Dir: filepath.Join(home, string(zone)), Login: f.login}
	if f.Root != "" {
		text, err := os.ReadFile(f.Root)
		o.Roots = x509.NewCertPool()
		if err != nil || !o.Roots.AppendCertsFromPEM(text) {
			return nil, "", &path.Error{What: "--root " + f.Root, Why: "it holds no certificate", Hint: "take root.pem of the cloud's operator", Err: err}
		}
	}
	c, err := client.New(o)
	return c, o.Dir, err
}

// login asks a person for the code of the store's page.
func (f *userFlags) login(_ context.Context, page string) (string, error) {
	fmt.Fprintf(f.stderr, "pseudonym: this cloud asks for an account. Log in at %s and type the code that it shows: ", page)
	code, err := bufio.NewReader(io.LimitReader(f.stdin, mostCode)).ReadString('\n')
	if err != nil && code == "" {
		return "", &path.Error{What: "the code", Why: "there is none", Hint: "run this in a terminal, or give the code by standard input", Err: err}
	}
	return code, nil
}

// mostCode is the size of a code in bytes.
const mostCode = 4096

func newGetCommand() *cobra.Command {
	var f struct {
		userFlags
		NSS string `flag:"nss" help:"also put the certificate, and the trust in the cloud's root, into the NSS database in <DIR>, such as a profile of Firefox or ~/.pki/nssdb of Chromium"`
	}
	return bind.Flags(&cobra.Command{
		Use:   "get SITE",
		Short: "Get a pseudonym of a site",
		Long: `Get registers a pseudonym of a site with the store of its cloud, and writes what
curl and other programs need into a directory: key.pem, which never leaves this
machine, cert.pem and root.pem. It prints the URL, which is as secret as the
key.

The first time it also gets a pseudonym of the store, by which it comes from
then on. So a network sees once that you use the store, and never for which
site.

If many people register from your address, it computes a proof of work that the
store asks for. If the cloud wants an account, it asks for the code of a page
where you log in.

With --nss a browser can use the pseudonym too, also one that you have already.
That needs certutil and pk12util, and a database without a password. Close the
browser before.`,
		Example: `  heddle pseudonym get news.example --zone cloud.example --root root.pem
  heddle pseudonym get news.example --zone cloud.example --root root.pem --nss ~/.pki/nssdb`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.one(cmd, func(ctx context.Context, c *client.Client) (*client.Saved, error) {
				if f.NSS != "" {
					return c.GetNSS(ctx, args[0], f.NSS)
				}
				return c.Get(ctx, args[0])
			})
		},
	}, &f)
}

func newRenewCommand() *cobra.Command {
	var f userFlags
	return bind.Flags(&cobra.Command{
		Use:     "renew SITE",
		Short:   "Let a pseudonym live on",
		Long:    "Renew gives your pseudonym of a site a new end. Its name, keys and URL stay.",
		Example: "  heddle pseudonym renew news.example",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.one(cmd, func(ctx context.Context, c *client.Client) (*client.Saved, error) { return c.Renew(ctx, args[0]) })
		},
	}, &f)
}

// one runs what returns a pseudonym, and prints it.
func (f *userFlags) one(cmd *cobra.Command, do func(context.Context, *client.Client) (*client.Saved, error)) error {
	f.stdin, f.stderr = cmd.InOrStdin(), cmd.ErrOrStderr()
	c, _, err := f.open()
	if err != nil {
		return err
	}
	s, err := do(cmd.Context(), c)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if err := cli.KeepToOwner(out); err != nil {
		return err
	}
	if f.JSON {
		return cli.WriteJSON(out, struct {
			store.Registration
			Dir string `json:"dir"`
		}{s.Registration, s.Dir})
	}
	_, err = fmt.Fprintf(out, "%s\n  ends %s\n  curl --cacert %s --cert %s --key %s '%s'\n", s.URL, s.Expires.Format(time.DateOnly), s.RootFile(), s.Cert(), s.Key(), s.URL)
	return err
}

func newListCommand() *cobra.Command {
	var f struct {
		bind.Printing
		Zone string `flag:"zone" help:"list those of one <DOMAIN> only"`
	}
	return bind.Flags(&cobra.Command{
		Use:   "list",
		Short: "List your pseudonyms",
		Long: `List prints the pseudonyms that this user has on this machine, without asking a
store.`,
		Example: "  heddle pseudonym list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			home, err := homeDir()
			if err != nil {
				return err
			}
			zones, _ := filepath.Glob(filepath.Join(home, "*"))
			var all []*client.Saved
			for _, dir := range zones {
				if f.Zone != "" && filepath.Base(dir) != f.Zone {
					continue
				}
				some, bad := client.All(dir)
				all, err = append(all, some...), errors.Join(err, bad)
			}
			return errors.Join(printList(cmd.OutOrStdout(), all, f.JSON), err)
		},
	}, &f)
}

// printList leaves out URLs, which are secret.
func printList(out io.Writer, all []*client.Saved, asJSON bool) error {
	now := time.Now()
	if asJSON {
		rows := make([]map[string]any, 0, len(all))
		for _, s := range all {
			rows = append(rows, map[string]any{"site": s.Site, "name": s.Name, "created": s.Created, "expires": s.Expires, "dir": s.Dir})
		}
		return cli.WriteJSON(out, rows)
	}
	return cli.Table(out, "SITE\tPSEUDONYM\tENDS", all, func(s *client.Saved) []any {
		ends := s.Expires.Format(time.DateOnly)
		if s.Ended(now) {
			ends = "ended: renew it"
		}
		return []any{s.Site, s.Name, ends}
	})
}

func newRevokeCommand() *cobra.Command {
	var f userFlags
	return bind.Flags(&cobra.Command{
		Use:   "revoke SITE",
		Short: "End a pseudonym for good",
		Long: `Revoke ends your pseudonym of a site, and removes its files. Connections by it
end within five seconds. You can get another one then.`,
		Example: "  heddle pseudonym revoke news.example",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := f.open()
			if err != nil {
				return err
			}
			if err := c.Revoke(cmd.Context(), args[0]); err != nil {
				return err
			}
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), map[string]any{"revoked": args[0]})
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "pseudonym: %s is revoked\n", args[0])
			return err
		},
	}, &f)
}
