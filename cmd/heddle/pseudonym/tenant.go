package pseudonym

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/internal/keyfile"
	"heddle/internal/netutil"
	"heddle/path"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/cloud"
	"heddle/pseudonym/database"
	"heddle/pseudonym/tenant"
	"heddle/pseudonym/tenant/defence"
)

func newTenantCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tenant",
		Short: "Be a site of a cloud, or manage its sites",
		Long: `A tenant is a site that a cloud hosts. The operator adds and removes tenants. A
tenant runs a sidecar in front of the site's web server, which stays as it is.`,
		Example: `  heddle pseudonym tenant key
  heddle pseudonym tenant add cloud.toml news.example --address 192.0.2.7:4443 --key sha256:...
  heddle pseudonym tenant run tenant.toml`,
	}
	cmd.AddCommand(newTenantAddCommand(), newTenantListCommand(), newTenantRemoveCommand(), newTenantKeyCommand(), newTenantRunCommand(), newTenantNginxCommand(), newTenantAgentCommand())
	return cmd
}

// loadCloud reads a cloud.toml.
func loadCloud(cmd *cobra.Command, file string) (c config.PseudonymCloud, o cloud.Options, err error) {
	if err = cli.Loaded(cmd, file, config.LoadPseudonymCloud, &c); err == nil {
		o, err = c.Options()
	}
	o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	return c, o, err
}

// withDatabase opens the database of a cloud.toml for a command.
func withDatabase(cmd *cobra.Command, file string, f func(context.Context, *database.DB) error) error {
	_, o, err := loadCloud(cmd, file)
	if err != nil {
		return err
	}
	db, err := cloud.OpenDatabase(cmd.Context(), o)
	if err != nil {
		return err
	}
	return errors.Join(f(cmd.Context(), db), db.Close())
}

// changeTenant changes the database for a command, and notes it in the audit log.
func changeTenant(cmd *cobra.Command, file, event, site string, f func(context.Context, *database.DB) error) error {
	if err := withDatabase(cmd, file, f); err != nil {
		return err
	}
	_, o, err := loadCloud(cmd, file)
	if err != nil {
		return err
	}
	return cloud.NoteTenant(o, event, site)
}

func newTenantAddCommand() *cobra.Command {
	var f struct {
		Addresses []string `flag:"address" help:"where gateways find the site's sidecar, <HOST:PORT> or unix:FILE, or its agent, handoff:HOST:PORT or handoff-direct:HOST:PORT; or v6:ADDRESS, where a switch leads packets to; each of them if there are several" list:"commas"`
		Key       string   `flag:"key" help:"<KEY> of the sidecar, as tenant key prints it"`
	}
	cmd := &cobra.Command{
		Use:   "add FILE SITE --address ADDRESS --key KEY",
		Short: "Let users get pseudonyms of a site",
		Long: `Add adds a site to a cloud. --address is where gateways find the site's sidecar:
HOST:PORT, or unix:FILE on the gateways' own machine, where they pass
connections themselves and carry no bytes. With v6:ADDRESS a switch leads
packets to the site by pseudo-addresses (v6-prefix in FILE). --key is what
heddle pseudonym tenant key printed there. A serve that runs takes it at once.

With several --address the site has a sidecar at each, all with the same key.
Gateways use them all, and go on without one that does not answer.`,
		Example: `  heddle pseudonym tenant add cloud.toml news.example --address 192.0.2.7:4443 --key sha256:...
  heddle pseudonym tenant add cloud.toml shop.example --address 192.0.2.8:4443 --address 192.0.2.9:4443 --key sha256:...`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			site, err := pseudonym.ParseHost(args[1])
			if err != nil {
				return cli.Usage(err)
			}
			t := database.Tenant{Site: site, Addresses: f.Addresses, Created: time.Now()}
			if err := t.Client.UnmarshalText([]byte(f.Key)); err != nil {
				return cli.Usage(err)
			}
			if len(f.Addresses) == 0 {
				f.Addresses = []string{""}
			}
			for _, address := range f.Addresses {
				if err := config.CheckSidecar("--address", address); err != nil {
					return cli.Usage(err)
				}
			}
			return changeTenant(cmd, args[0], cloud.TenantAdded, site, func(ctx context.Context, db *database.DB) error {
				err := db.AddTenant(ctx, t)
				if errors.Is(err, database.ErrExists) {
					err = &path.Error{What: site, Why: "the site, or the key, is there already", Hint: "heddle pseudonym tenant list", Err: err}
				}
				return err
			})
		},
	}
	bind.Flags(cmd, &f)
	_ = cmd.MarkFlagRequired("address")
	_ = cmd.MarkFlagRequired("key")
	return cmd
}

func newTenantListCommand() *cobra.Command {
	var f bind.Printing
	return bind.Flags(&cobra.Command{
		Use:   "list FILE",
		Short: "List the sites of a cloud",
		Long: `List prints each site of a cloud, where its sidecars are, and since when it
is there.`,
		Example: "  heddle pseudonym tenant list cloud.toml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDatabase(cmd, args[0], func(ctx context.Context, db *database.DB) error {
				all, err := db.Tenants(ctx)
				if err != nil {
					return err
				}
				if f.JSON {
					return cli.WriteJSON(cmd.OutOrStdout(), all)
				}
				return cli.Table(cmd.OutOrStdout(), "SITE\tADDRESS\tSINCE", all, func(t database.Tenant) []any {
					return []any{t.Site, strings.Join(t.Addresses, ", "), t.Created.Format(time.DateOnly)}
				})
			})
		},
	}, &f)
}

func newTenantRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove FILE SITE",
		Short: "Remove a site with all its pseudonyms",
		Long: `Remove removes a site from a cloud. Its pseudonyms stop working within five
seconds, also in connections that are open. They cannot be brought back.`,
		Example: "  heddle pseudonym tenant remove cloud.toml news.example",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			site, err := pseudonym.ParseHost(args[1])
			if err != nil {
				return cli.Usage(err)
			}
			return changeTenant(cmd, args[0], cloud.TenantRemoved, site, func(ctx context.Context, db *database.DB) error {
				err := db.RemoveTenant(ctx, site)
				if errors.Is(err, pseudonym.ErrNone) {
					err = &path.Error{What: site, Why: "the cloud has no such site", Hint: "heddle pseudonym tenant list", Err: err}
				}
				return err
			})
		},
	}
}

func newTenantKeyCommand() *cobra.Command {
	f := struct {
		Identity string `flag:"identity" help:"keep the key in <FILE>" complete:"file"`
	}{config.DefaultPseudonymTenant().Identity}
	return bind.Flags(&cobra.Command{
		Use:   "key",
		Short: "Print a sidecar's key, and make it if there is none",
		Long: `Key makes the private key by which a sidecar asks the cloud's store, in a file
that only its owner can read, and prints what the operator needs for tenant add.`,
		Example: "  heddle pseudonym tenant key --identity /etc/heddle/tenant.pem",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := loadTenantKey(f.Identity, true)
			if err != nil {
				return err
			}
			cert, err := tenantCertificate(key)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), ca.KeyOf(cert.Leaf))
			return err
		},
	}, &f)
}

func loadTenantKey(file string, create bool) (*ecdsa.PrivateKey, error) {
	load := func(file string) (*ecdsa.PrivateKey, error) {
		key, problem := keyfile.Load[*ecdsa.PrivateKey](file)
		if problem == nil {
			return key, nil
		}
		hint := problem.Hint
		if errors.Is(problem.Err, fs.ErrNotExist) {
			hint = "heddle pseudonym tenant key makes one"
		}
		return nil, &path.Error{What: "the key " + file, Why: problem.Why, Hint: hint, Err: problem.Err}
	}
	if !create {
		return load(file)
	}
	key, _, err := keyfile.LoadOrCreate(file, load, func(file string) (*ecdsa.PrivateKey, error) {
		key, err := ca.NewKey()
		if err != nil {
			return nil, err
		}
		return key, keyfile.Create(file, key)
	})
	return key, err
}

// tenantCertificate makes the certificate that a sidecar shows to the store, which looks at its key only.
func tenantCertificate(key *ecdsa.PrivateKey) (tls.Certificate, error) {
	const long = 10 * 365 * 24 * time.Hour
	c, err := ca.Client("tenant", key, time.Now(), time.Now().Add(long))
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}, nil
}

func newTenantRunCommand() *cobra.Command {
	t := config.DefaultPseudonymTenant()
	return bind.Flags(&cobra.Command{
		Use:   "run [FILE]",
		Short: "Serve a site's pseudonyms in front of its web server",
		Long: `Run is the sidecar of a site until it is interrupted. It admits the holders of
pseudonyms only, by TLS 1.3 with their own certificates, and passes their
requests to the site's web server, which sees its own name. FILE is a
tenant.toml, whose keys have the names of the flags. A flag overrides its key.

A request has to show the pseudonym's capability, which is in the URL that the
user got, or a cookie that the sidecar gave for it. So another site cannot find
out by a link or an image who reaches this one. Others get 404 Not Found.

While the store does not answer, pseudonyms that the sidecar knows stay usable.

--to may also name a server that speaks something else within TLS, such as IMAP
or PostgreSQL. It gets the bytes of the holders of pseudonyms alone.

In pages, style sheets, redirects and cookies it replaces the site's own name by
the pseudonym. In scripts that pages load, and in JSON, it does so with
--rewrite, and only where a URL has the whole name.

With --defence a Service Worker in the user's browser loads what pages need in
pieces that are padded, so that their sizes tell less about the page. Browsers
without scripts go on without it if their user says so.

Links to other sites of the cloud lead to its linker, and from there to the
user's own pseudonyms of those sites that trust this one.`,
		Example: `  heddle pseudonym tenant run tenant.toml
  heddle pseudonym tenant run --zone cloud.example --store 192.0.2.1:4481 --to http://127.0.0.1:8080`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.FileUnderFlags(cmd, args, config.LoadPseudonymTenant, &t); err != nil {
				return err
			}
			if err := cli.UsageBy(cmd, t.Check()); err != nil {
				return err
			}
			return runTenant(cmd, t)
		},
	}, &t, "zone", "store", "root", "identity", "to", "listen", "gateway-from", "gateway-group", "trusts", "defence", "rewrite", "size")
}

// tenantOptions reads what a sidecar needs.
func tenantOptions(cmd *cobra.Command, t config.PseudonymTenant) (o tenant.Options, err error) {
	key, err := loadTenantKey(t.Identity, false)
	if err != nil {
		return o, err
	}
	own, err := tenantCertificate(key)
	if err != nil {
		return o, err
	}
	text, err := os.ReadFile(t.Root)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(text) {
		return o, &path.Error{What: "the root " + t.Root, Why: "it holds no certificate", Hint: "take root.pem of the cloud's operator", Err: err}
	}
	zone, err := pseudonym.ParseZone(t.Zone)
	if err != nil {
		return o, err
	}
	o = tenant.Options{Zone: zone, Stores: t.Store, Gateways: t.Gateways(), Trusts: t.Trusts, Rewrite: t.Rewrite, Size: t.Size,
		TLS: &tls.Config{ServerName: cloud.TenantsLabel + "." + string(zone), RootCAs: roots, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}},
		Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))}
	if o.Defence, err = defence.Parse(t.Defence); err != nil {
		return o, err
	}
	o.To, o.Stream, err = t.Target()
	return o, err
}

func runTenant(cmd *cobra.Command, t config.PseudonymTenant) error {
	o, err := tenantOptions(cmd, t)
	if err != nil {
		return err
	}
	stderr := cmd.ErrOrStderr()
	s, err := tenant.New(o)
	if err != nil {
		return err
	}
	l, err := runner.Listen(cmd.Context(), "listen", t.Listen, false)
	if err == nil && t.GatewayGroup != "" {
		err = netutil.GiveUnix(l, t.GatewayGroup)
	}
	if err != nil {
		return err
	}
	show := func() control.Status {
		st := s.Status()
		return control.Status{Tenant: &st}
	}
	parts := []runner.Part{{Name: "listen", Run: func(ctx context.Context) error { return s.Serve(ctx, l) }}}
	if t.Metrics != "" {
		m, err := runner.Listen(cmd.Context(), "metrics", t.Metrics, false)
		if err != nil {
			l.Close()
			return err
		}
		parts = append(parts, runner.Part{Name: "metrics", Run: func(ctx context.Context) error { return runner.Metrics(show)(ctx, m) }})
	}
	fmt.Fprintf(stderr, "pseudonym: listening on %s for %s\n", l.Addr(), t.To)
	return runner.Run(cmd.Context(), runner.Options{Name: "tenant", Taken: runner.AddNumber, Talk: stderr}, func(ctx context.Context, r *runner.Runner) error {
		r.Show(show)
		r.Ready()
		return runner.Together(ctx, parts, stderr)
	})
}
