// Package tenants measures by what an observer between a client and a cloud could tell the tenants of the cloud apart, if all serve the same page: the
// headers of IP and TCP, the messages of TLS by their sizes, the times between packets, and how connections end.
//
// Ten tenants on machines of their own have different servers behind their sidecars, other programs in a sidecar's place or before it, and kernels that
// are set otherwise. Each has several pseudonyms, so that what tells a pseudonym from others does not pass for what tells a tenant.
package tenants
