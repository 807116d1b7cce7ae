//go:build ignore

// The program that leads packets to pseudo-addresses to their tenants, where they arrive on a device. Package v6switch says what it does;
// `make bpf` compiles it.

#include "heddle_bpf.h"

char _license[] SEC("license") = "Apache-2.0";

// What the program is loaded for. The kernel knows these when it checks the program.
#define PORTS 8
volatile const __u32 prefix[2];    // of the pseudo-addresses, in the order of the network
volatile const __u16 ports[PORTS]; // of TCP that tenants are reached at, in the order of the network; 0 is none

#define HEADER 14 // of Ethernet
#define KEYS 4
#define ROUNDS 27
// A router between the switch and a tenant would answer a packet that comes to its last hop there, with an address of its own.
#define HOPS 8

struct counts {
	__u64 led;         // to a tenant
	__u64 own;         // to this machine
	__u64 unknown;     // no key opens the address, or there is no such tenant
	__u64 refused;     // what tenants do not get
	__u64 unreachable; // no route leads to the tenant
};

#define LOOPBACK 1 // the number of lo in each network namespace

struct tenant {
	__u32 index;   // of the device that packets to the tenant leave by: LOOPBACK for this machine, 0 if there is none
	__u32 next[4]; // hop
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct counts);
} heddle_counts SEC(".maps");

// The process replaces elements of these two while packets pass. A hash whose elements are allocated one by one keeps the old one whole
// for a packet that is just looking at it.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, KEYS);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__type(key, __u32);
	__type(value, __u32[ROUNDS]);
} heddle_keys SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__type(key, __u32);
	__type(value, struct tenant);
} heddle_tenants SEC(".maps");

struct packet {
	__u32 ip[10]; // RFC 8200, section 3
};

// Words of an IPv6 header.
#define SOURCE 2
#define TARGET 6

// note counts packets, of a run of segments each. The compiler must not compute the field's address earlier: the kernel refuses a
// pointer to within the packet's context.
#define note(skb, what)                                                                    \
	do {                                                                               \
		__u32 first = 0;                                                           \
		struct counts *c = bpf_map_lookup_elem(&heddle_counts, &first);            \
		asm volatile("" : "+r"(skb));                                              \
		if (c)                                                                     \
			__sync_fetch_and_add(&c->what, skb->gso_segs ? skb->gso_segs : 1); \
	} while (0)

#define drop(skb, why)               \
	({                           \
		note(skb, why);      \
		(int)TC_ACT_SHOT;    \
	})

// opened decrypts an interface identifier (SPECK64/128, as in package address). It returns the tenant's number, or -1 if the check bits
// are not 0.
static inline int opened(const __u32 *key, __u32 x, __u32 y)
{
#pragma unroll
	for (int i = ROUNDS - 1; i >= 0; i--) {
		y ^= x;
		y = y >> 3 | y << 29;
		x = (x ^ key[i]) - y;
		x = x << 8 | x >> 24;
	}
	return x >> 8 ? -1 : (int)(x << 8 | y >> 24);
}

static inline struct tenant *tenant_of(const struct packet *p)
{
	__u32 x = ntohl(p->ip[TARGET + 2]), y = ntohl(p->ip[TARGET + 3]);
	for (int i = 0; i < KEYS; i++) {
		__u32 slot = i;
		const __u32 *key = bpf_map_lookup_elem(&heddle_keys, &slot);
		if (!key)
			continue;
		int number = opened(key, x, y);
		if (number < 0)
			continue;
		__u32 n = number;
		struct tenant *t = bpf_map_lookup_elem(&heddle_tenants, &n);
		if (t)
			return t;
	}
	return NULL;
}

// passes reports whether a packet is one that tenants get: TCP to a port of the gateway's, and messages about the path. A tenant answers others
// from its own address, such as a fragment whose rest is missing, an unknown header or a datagram to a port that is closed. And its other
// ports may have servers that show whose they are.
static inline int passes(struct __sk_buff *skb, struct packet *p)
{
	const __u8 *ip = (const __u8 *)p->ip;
	__u16 at[2];
	if (bpf_skb_load_bytes(skb, HEADER + 40, at, sizeof(at)))
		return 0;
	if (ip[6] == IPPROTO_ICMPV6) { // errors alone (RFC 4443, section 2.1)
		__u8 type = *(__u8 *)at;
		return type >= 1 && type <= 4;
	}
	if (ip[6] != IPPROTO_TCP || !at[1])
		return 0;
	for (int i = 0; i < PORTS; i++)
		if (at[1] == ports[i])
			return 1;
	return 0;
}

// foreign reports whether the source may be a client's: no multicast or link-local address, none of this prefix, and none that begins with
// 64 bits of 0, as the loopback address does.
static inline int foreign(const struct packet *p)
{
	__u32 first = ntohl(p->ip[SOURCE]);
	if (first >> 24 == 0xff || first >> 22 == 0xfe80 >> 6)
		return 0;
	if (!first && !p->ip[SOURCE + 1])
		return 0;
	return p->ip[SOURCE] != prefix[0] || p->ip[SOURCE + 1] != prefix[1];
}

// lead sends a packet to a tenant, and leaves its destination as it is.
static inline int lead(struct __sk_buff *skb, struct packet *p, const struct tenant *t)
{
	struct next_hop next = {.family = AF_INET6};
	if (!t->index)
		return drop(skb, unreachable);
	for (int i = 0; i < 4; i++)
		next.address[i] = t->next[i];
	__u8 hops = ((__u8 *)p->ip)[7] - 1;
	if (bpf_skb_store_bytes(skb, HEADER + 7, &hops, 1, BPF_F_RECOMPUTE_CSUM))
		return drop(skb, unreachable);
	note(skb, led);
	return bpf_redirect_neigh(t->index, &next, sizeof(next), 0);
}

SEC("tc") int heddle_v6(struct __sk_buff *skb)
{
	struct packet p;
	if (skb->protocol != htons(ETH_P_IPV6) || skb->vlan_present || bpf_skb_load_bytes(skb, HEADER, p.ip, sizeof(p.ip)))
		return TC_ACT_UNSPEC;
	if (p.ip[TARGET] != prefix[0] || p.ip[TARGET + 1] != prefix[1])
		return TC_ACT_UNSPEC;
	const struct tenant *t = tenant_of(&p);
	if (!t)
		return drop(skb, unknown);
	if (!passes(skb, &p) || !foreign(&p) || ((__u8 *)p.ip)[7] < HOPS)
		return drop(skb, refused);
	if (t->index == LOOPBACK) {
		note(skb, own);
		return TC_ACT_UNSPEC;
	}
	return lead(skb, &p, t);
}
