// Package mptcp tests `heddle stream --backend mptcp` with `heddle node run --mode nat`: a client with one uplink,
// three nodes whose kernels forward its subflows, and a server. Tests only.
package mptcp
