// Package pseudonym is `heddle pseudonym`: names by which one person reaches one site, and which tell a network nothing about it.
package pseudonym

import "github.com/spf13/cobra"

// Command is `heddle pseudonym`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pseudonym",
		Short: "Reach a site by a name that only you have",
		Long: `A pseudonym is a name in the zone of a cloud by which one person reaches one of
the sites that the cloud hosts. Its addresses, its certificate and the name are
independent of the site, so a network on the way sees that you use the cloud,
and not which site. Only the holder of the pseudonym's key is admitted.

The network also sees the pseudonym, and so that the same person comes again,
unless the browser encrypts names in TLS (ECH) and asks for them by HTTPS.

The cloud knows who reaches what. The sizes and times of packets, which may tell
the site, are not hidden.

An operator runs init, serve and tenant add. A tenant runs tenant key and tenant
run in front of the site's web server. A user runs get.`,
		Example: `  heddle pseudonym init cloud.example --gateway 192.0.2.1 --dir /etc/heddle/cloud
  heddle pseudonym serve /etc/heddle/cloud/cloud.toml
  heddle pseudonym get news.example --zone cloud.example`,
	}
	cmd.AddCommand(newInitCommand(), newServeCommand(), newTenantCommand(), newDoctorCommand(), newStatsCommand(), newAuditCommand(), newBackupCommand(), newZoneCommand(), newGatewayKeyCommand(), newGetCommand(), newListCommand(), newRenewCommand(), newRevokeCommand())
	return cmd
}
