package pseudonym

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/pseudonym/tenant"
)

func newTenantNginxCommand() *cobra.Command {
	t := config.DefaultPseudonymTenant()
	return bind.Flags(&cobra.Command{
		Use:   "nginx [FILE]",
		Short: "Serve a site's pseudonyms by nginx",
		Long: `Nginx writes a configuration by which nginx serves a site's pseudonyms in place
of the sidecar, and then runs beside it until it is interrupted: it keeps the
certificates in a directory, and tells nginx for each request whether the
pseudonym's own client sent it, with the capability. Without it nginx answers
nobody. FILE is a tenant.toml, whose keys have the names of the flags.

Include DIR/nginx.conf in the section http of nginx.conf. nginx's workers have
to read the directory. Let it have their group:

  install -d -g www-data -m 2750 DIR

Gateways have to come to nginx, which asks each for the PROXY protocol. Clients
who come by pseudo-addresses need an address of their own (--listen-v6). A new
pseudonym works within seconds. Somebody without the right certificate completes
TLS, and gets no answer.

nginx replaces the site's name in pages, style sheets, redirects and cookies. It
does not lead links to other sites to the linker, and has no page defence. Use
tenant run for these.`,
		Example: `  heddle pseudonym tenant nginx tenant.toml
  heddle pseudonym tenant nginx --zone cloud.example --store 192.0.2.1:4481 --to http://127.0.0.1:8080 --site news.example`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.FileUnderFlags(cmd, args, config.LoadPseudonymTenant, &t); err != nil {
				return err
			}
			if err := cli.UsageBy(cmd, t.CheckNginx()); err != nil {
				return err
			}
			return runNginx(cmd, t)
		},
	}, &t, "zone", "store", "root", "identity", "to", "listen", "gateway-from", "trusts", "site", "listen-v6", "nginx-dir", "size")
}

func runNginx(cmd *cobra.Command, t config.PseudonymTenant) error {
	o, err := tenantOptions(cmd, t)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(t.NginxDir)
	if err != nil {
		return err
	}
	n, err := tenant.NewNginx(o, tenant.NginxAt{Site: t.Site, Dir: dir, Listen: t.Listen, ListenV6: t.ListenV6})
	if err != nil {
		return err
	}
	stderr := cmd.ErrOrStderr()
	return runner.Run(cmd.Context(), runner.Options{Name: "tenant", Taken: runner.AddNumber, Talk: stderr}, func(ctx context.Context, r *runner.Runner) error {
		return n.Serve(ctx, func() {
			fmt.Fprintf(stderr, "pseudonym: nginx can include %s\n", filepath.Join(dir, "nginx.conf"))
			r.Show(func() control.Status { return control.Status{Tenant: &tenant.Status{To: t.To + ", by nginx"}} })
			r.Ready()
		})
	})
}
