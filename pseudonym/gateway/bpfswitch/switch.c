//go:build ignore

// The programs that lead the packets of moved connections. Package bpfswitch says what they do; `make bpf` compiles them.

#include "heddle_bpf.h"

char _license[] SEC("license") = "Apache-2.0";

// What the programs are loaded for. The kernel knows these when it checks the programs.
volatile const __u64 idle;      // nanoseconds that an entry lasts after the last packet
volatile const __u32 untracked; // the priority of packets that the kernel is not to track
volatile const __u8 ttl4, ttl6; // of this machine's own packets
volatile const __u32 header;    // length of the device's link header

// key is source and destination of packets, in the order of the network. Addresses of IPv4 are mapped (RFC 4291, section 2.5.5.2).
struct key {
	__u32 source[4], target[4];
	__u16 ports[2];
};

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define MAPPED 0xffff0000
#else
#define MAPPED 0x0000ffff
#endif

// What happened to a connection. It has ended when both sides sent their last byte, or the tenant broke off: forged packets of a
// client alone cannot end it.
#define FINISHED 1 // the client sent its last byte
#define ANSWERED 2 // the tenant did
#define BROKEN 4   // the tenant sent a reset

struct entry {
	__u64 last;       // packet, by bpf_ktime_get_ns
	__u32 address[4]; // in the place of the packet's destination or source
	__u32 state;      // of to alone
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct key); // client and gateway
	__type(value, struct entry);
} heddle_to SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct key); // tenant and client
	__type(value, struct entry);
} heddle_back SEC(".maps");

// A direct entry leads to a tenant that has the gateway's address too and answers the client past this machine, which sees the client's packets alone.
struct direct {
	__u64 last;
	__u32 address[4]; // of the tenant, a neighbour at the device
	__u32 device;
	__u32 offered; // whether this machine answered a SYN since
	__u32 begins;  // what the client's acknowledgement of that answer has
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct key); // client and gateway
	__type(value, struct direct);
} heddle_direct SEC(".maps");

// Flags of TCP (RFC 9293).
#define FIN 1
#define SYN 2
#define RST 4
#define ACK 16

struct tcp {
	__u16 ports[2];
	__u32 number, acknowledged;
	__u8 offset, flags;
};

struct packet {
	struct key key;
	__u32 at; // the header of TCP or ICMP
	__u8 v6, tcp;
	__u8 flags;
	__u32 number, acknowledged;
};

// addresses takes source and destination out of an IP header, and returns the protocol, or -1 if it is a fragment.
static inline int addresses(struct key *k, const __u32 *ip, int v6)
{
	if (v6) { // RFC 8200, section 3
		for (int i = 0; i < 4; i++) {
			k->source[i] = ip[2 + i];
			k->target[i] = ip[6 + i];
		}
		int protocol = ((const __u8 *)ip)[6];
		asm volatile("" : "+r"(protocol)); // else one load has an offset from two paths, which the kernel takes of root alone
		return protocol;
	}
	k->source[0] = k->source[1] = k->target[0] = k->target[1] = 0;
	k->source[2] = k->target[2] = MAPPED;
	k->source[3] = ip[3];
	k->target[3] = ip[4];
	if (((const __u16 *)ip)[3] & htons(0x3fff)) // RFC 791, section 3.1
		return -1;
	return ((const __u8 *)ip)[9];
}

// parse reports whether a packet is one of TCP or ICMP.
static inline int parse(struct __sk_buff *skb, struct packet *p)
{
	__u32 ip[10] = {}; // the kernel lets root alone read what nobody wrote, as the compiler does of IPv6 before it knows the version
	if (skb->vlan_present) // the device of the VLAN sees it too
		return 0;
	p->v6 = skb->protocol == htons(ETH_P_IPV6);
	if (!p->v6 && skb->protocol != htons(ETH_P_IP))
		return 0;
	p->at = header + 40;
	if (p->v6) {
		if (bpf_skb_load_bytes(skb, header, ip, 40))
			return 0;
	} else {
		if (bpf_skb_load_bytes(skb, header, ip, 20))
			return 0;
		p->at = header + (*(__u8 *)ip & 15) * 4;
	}
	int protocol = addresses(&p->key, ip, p->v6);
	p->tcp = protocol == IPPROTO_TCP;
	if (!p->tcp)
		return protocol == (p->v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
	struct tcp tcp;
	if (bpf_skb_load_bytes(skb, p->at, &tcp, 14))
		return 0;
	p->key.ports[0] = tcp.ports[0];
	p->key.ports[1] = tcp.ports[1];
	p->flags = tcp.flags;
	p->number = tcp.number;
	p->acknowledged = tcp.acknowledged;
	return 1;
}

// lasts reports whether an entry is in use. Another processor's packet may be later than now.
static inline int lasts(__u64 last) { return bpf_ktime_get_ns() < last + idle; }

static inline struct entry *find(void *map, const struct key *k)
{
	struct entry *e = bpf_map_lookup_elem(map, k);
	return e && lasts(e->last) ? e : NULL;
}

static inline struct direct *find_direct(const struct key *k)
{
	struct direct *d = bpf_map_lookup_elem(&heddle_direct, k);
	return d && lasts(d->last) ? d : NULL;
}

// turn gives the key of the packets in the other direction.
static inline void turn(const struct key *of, struct key *k)
{
	for (int i = 0; i < 4; i++) {
		k->source[i] = of->target[i];
		k->target[i] = of->source[i];
	}
	k->ports[0] = of->ports[1];
	k->ports[1] = of->ports[0];
}

static inline int ended(__u32 state) { return state & BROKEN || (state & (FINISHED | ANSWERED)) == (FINISHED | ANSWERED); }

static inline void happened(struct entry *to, __u32 what)
{
	if (to)
		__sync_fetch_and_or(&to->state, what);
}

// readdress writes an address into a packet, and corrects its checksums: that of IPv4 at ip, if there is one, and at sum that of TCP or ICMPv6,
// which covers the address as part of its pseudo-header or of the message.
static inline void readdress(struct __sk_buff *skb, const struct packet *p, __u32 at, const __u32 *before, const __u32 *now, __u32 ip, __u32 sum, __u64 pseudo)
{
	if (p->v6) {
		bpf_l4_csum_replace(skb, sum, 0, bpf_csum_diff(before, 16, now, 16, 0), pseudo);
		bpf_skb_store_bytes(skb, at, now, 16, 0);
		return;
	}
	if (sum)
		bpf_l4_csum_replace(skb, sum, before[3], now[3], pseudo | 4);
	bpf_l3_csum_replace(skb, ip, before[3], now[3], 4);
	bpf_skb_store_bytes(skb, at, &now[3], 4, 0);
}

// checksum returns the offset of the checksum that covers the packet's addresses, or 0 for ICMP of IPv4, which does not.
static inline __u32 checksum(const struct packet *p) { return p->tcp ? p->at + 16 : p->v6 ? p->at + 2 : 0; }

static inline void set_target(struct __sk_buff *skb, const struct packet *p, const __u32 *now)
{
	readdress(skb, p, header + (p->v6 ? 24 : 16), p->key.target, now, header + 10, checksum(p), BPF_F_PSEUDO_HDR);
}

static inline void set_source(struct __sk_buff *skb, const struct packet *p, const __u32 *now)
{
	readdress(skb, p, header + (p->v6 ? 8 : 12), p->key.source, now, header + 10, checksum(p), BPF_F_PSEUDO_HDR);
}

// like_own gives a packet the TTL or hop limit of this machine's own packets: observers would see how far away the tenant is. A client's
// packet could end behind this machine, and the error, or that no answer comes, would show that too.
static inline void like_own(struct __sk_buff *skb, const struct packet *p)
{
	if (p->v6) {
		__u8 hops = ttl6;
		bpf_skb_store_bytes(skb, header + 7, &hops, 1, 0);
		return;
	}
	__u8 before[2], now[2];
	if (bpf_skb_load_bytes(skb, header + 8, before, 2))
		return;
	now[0] = ttl4;
	now[1] = before[1];
	bpf_l3_csum_replace(skb, header + 10, *(__u16 *)before, *(__u16 *)now, 2);
	bpf_skb_store_bytes(skb, header + 8, now, 2, 0);
}

// An ICMP error quotes the packet that it is about, and both sides know that by other addresses than the other side.
#define QUOTED 8 // bytes before the quoted packet (RFC 792, RFC 4443)

// quoted matches an error about a packet of TCP, whose key it gives as it is for packets of the other direction. Of IPv4 it takes headers
// without options alone.
static inline int quoted(struct __sk_buff *skb, const struct packet *p, struct key *k)
{
	__u32 ip[10] = {}, at = p->at + QUOTED;
	struct key of;
	if (p->v6) {
		if (bpf_skb_load_bytes(skb, at, ip, 40))
			return 0;
	} else if (bpf_skb_load_bytes(skb, at, ip, 20) || *(__u8 *)ip != 0x45) {
		return 0;
	}
	if (addresses(&of, ip, p->v6) != IPPROTO_TCP || bpf_skb_load_bytes(skb, at + (p->v6 ? 40 : 20), of.ports, 4))
		return 0;
	turn(&of, k);
	return 1;
}

#define ERROR 1
#define TOO_LARGE 2

// kind returns what an ICMP message is.
static inline int kind(struct __sk_buff *skb, const struct packet *p)
{
	__u8 of[2]; // type and code
	if (bpf_skb_load_bytes(skb, p->at, of, 2))
		return 0;
	if (p->v6)
		return of[0] == 2 && !of[1] ? TOO_LARGE : of[0] >= 1 && of[0] <= 4 ? ERROR : 0;
	if (of[0] == 3 && of[1] == 4)
		return TOO_LARGE;
	return of[0] == 3 || of[0] == 4 || of[0] == 5 || of[0] == 11 || of[0] == 12 ? ERROR : 0;
}

// requote writes the address into the quoted packet, whose source or destination was before. The checksum of the quoted IPv4 header makes up
// for the change, so that the one of ICMP stays right.
static inline void requote(struct __sk_buff *skb, const struct packet *p, int target, const __u32 *before, const __u32 *now)
{
	__u32 ip = p->at + QUOTED;
	readdress(skb, p, ip + (p->v6 ? (target ? 24 : 8) : target ? 16 : 12), before, now, ip + 10, p->v6 ? p->at + 2 : 0, 0);
}

static inline int same(const __u32 *a, const __u32 *b) { return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3]; }

// forward sends a packet as it is to the machine of a tenant that answers directly.
static inline int forward(struct __sk_buff *skb, const struct packet *p, const struct direct *d)
{
	struct next_hop next = {.family = AF_INET, .address = {d->address[3]}};
	if (p->v6) {
		next.family = AF_INET6;
		for (int i = 0; i < 4; i++)
			next.address[i] = d->address[i];
	}
	return bpf_redirect_neigh(d->device, &next, sizeof(next), 0);
}

// error_in leads the message that a packet of the tenant's was too large. Others are for this machine, which ignores them.
static inline int error_in(struct __sk_buff *skb, struct packet *p)
{
	struct key k;
	if (kind(skb, p) != TOO_LARGE || !quoted(skb, p, &k) || !same(k.target, p->key.target))
		return TC_ACT_UNSPEC;
	struct direct *d = find_direct(&k);
	if (d)
		return forward(skb, p, d);
	struct entry *to = find(&heddle_to, &k);
	if (!to)
		return TC_ACT_UNSPEC;
	requote(skb, p, 0, k.target, to->address);
	set_target(skb, p, to->address);
	skb->priority = untracked;
	return TC_ACT_UNSPEC;
}

// error_out leads the message that a packet of the client's was too large. No other one passes: it quotes the tenant's address, so that whoever
// sends packets in a client's name and sees the answers would learn where they lead.
static inline int error_out(struct __sk_buff *skb, struct packet *p)
{
	struct key k;
	int what = kind(skb, p);
	if (!what || !quoted(skb, p, &k))
		return TC_ACT_UNSPEC;
	struct entry *back = find(&heddle_back, &k);
	if (!back)
		return TC_ACT_UNSPEC;
	if (what != TOO_LARGE)
		return TC_ACT_SHOT;
	requote(skb, p, 1, k.source, back->address);
	set_source(skb, p, back->address);
	like_own(skb, p);
	return TC_ACT_UNSPEC;
}

// from_tenant keeps the kernel from tracking a tenant's packets. If a tenant begins a connection from the client's port that did not pass the
// gateway, the one that was led has ended there. A SYN that somebody forges does not lead to this while it lasts: the tenant answers with an ACK
// alone (RFC 5961, section 4).
static inline void from_tenant(struct __sk_buff *skb, const struct packet *p)
{
	if (!find(&heddle_back, &p->key))
		return;
	if (p->flags & SYN)
		bpf_map_delete_elem(&heddle_back, &p->key);
	else
		skb->priority = untracked;
}

// ask makes an acknowledgement of 0 of a client's SYN. A tenant that has the connection answers it with an acknowledgement, as it does a SYN, and one that
// has it no more with a reset. To a SYN another server of the tenant's machine would answer, with the tenant's address, if it listens there.
static inline void ask(struct __sk_buff *skb, const struct packet *p)
{
	__u32 was, now = 0, sum = p->at + 16;
	if (bpf_skb_load_bytes(skb, p->at + 8, &was, 4))
		return;
	bpf_l4_csum_replace(skb, sum, was, now, 4);
	bpf_skb_store_bytes(skb, p->at + 8, &now, 4, 0);
	__u8 offset[2] = {}, acknowledges[2] = {};
	if (bpf_skb_load_bytes(skb, p->at + 12, offset, 2))
		return;
	acknowledges[0] = offset[0];
	acknowledges[1] = ACK;
	bpf_l4_csum_replace(skb, sum, *(__u16 *)offset, *(__u16 *)acknowledges, 2);
	bpf_skb_store_bytes(skb, p->at + 12, acknowledges, 2, 0);
}

// direct_in leads a client's packet to a tenant that answers directly. How its connection ends cannot be seen here, so a SYN goes to the gateway,
// which answers, and the entry ends when the client acknowledges that answer. Whoever forges packets in the client's name does not see the answer, and a
// client whose connection goes on does not acknowledge it.
static inline int direct_in(struct __sk_buff *skb, const struct packet *p, struct direct *d)
{
	if (!p->v6 && p->at != header + 20) // as below: the tenant's machine could answer to the options
		return TC_ACT_SHOT;
	if ((p->flags & (SYN | ACK | RST | FIN)) == SYN)
		return TC_ACT_UNSPEC;
	if (d->offered && (p->flags & (SYN | ACK | RST)) == ACK && p->acknowledged == d->begins) {
		bpf_map_delete_elem(&heddle_direct, &p->key);
		return TC_ACT_UNSPEC;
	}
	d->last = bpf_ktime_get_ns();
	return forward(skb, p, d);
}

// offer notes that this machine answers a client's SYN.
static inline void offer(const struct packet *p)
{
	struct key k;
	turn(&p->key, &k);
	struct direct *d = find_direct(&k);
	if (!d)
		return;
	d->begins = htonl(ntohl(p->number) + 1);
	d->offered = 1;
}

// in is for what arrives.
SEC("tc") int heddle_lead_in(struct __sk_buff *skb)
{
	struct packet p;
	if (!parse(skb, &p))
		return TC_ACT_UNSPEC;
	if (!p.tcp)
		return error_in(skb, &p);
	struct direct *direct = find_direct(&p.key);
	if (direct)
		return direct_in(skb, &p, direct);
	struct entry *to = find(&heddle_to, &p.key);
	if (!to) {
		from_tenant(skb, &p);
		return TC_ACT_UNSPEC;
	}
	if (!p.v6 && p.at != header + 20) // error_out would not know the packet again that an error quotes
		return TC_ACT_SHOT;
	if ((p.flags & (SYN | ACK | RST | FIN)) == SYN) { // it prolongs no entry
		if (ended(to->state)) {
			bpf_map_delete_elem(&heddle_to, &p.key);
			return TC_ACT_UNSPEC;
		}
		ask(skb, &p);
	} else {
		if (p.flags & FIN)
			happened(to, FINISHED);
		to->last = bpf_ktime_get_ns();
	}
	set_target(skb, &p, to->address);
	like_own(skb, &p);
	skb->priority = untracked;
	return TC_ACT_UNSPEC;
}

// out is for what leaves. A source that is an address of this machine would not pass routing, so the source changes here.
SEC("tc") int heddle_lead_out(struct __sk_buff *skb)
{
	struct packet p;
	if (skb->priority == untracked)
		skb->priority = 0;
	if (!parse(skb, &p))
		return TC_ACT_UNSPEC;
	if (!p.tcp)
		return error_out(skb, &p);
	if ((p.flags & (SYN | ACK)) == (SYN | ACK))
		offer(&p);
	struct entry *back = find(&heddle_back, &p.key);
	if (!back)
		return TC_ACT_UNSPEC;
	if (p.flags & (FIN | RST)) {
		struct key k;
		turn(&p.key, &k);
		for (int i = 0; i < 4; i++)
			k.target[i] = back->address[i];
		happened(find(&heddle_to, &k), p.flags & RST ? BROKEN : ANSWERED);
	}
	// The answer to what ask makes of a SYN has the number 0 if there is no connection. So the SYN was the first packet of a new one. It comes again, to the
	// gateway.
	if (p.flags & RST && !p.number)
		return TC_ACT_SHOT;
	back->last = bpf_ktime_get_ns();
	set_source(skb, &p, back->address);
	like_own(skb, &p);
	return TC_ACT_UNSPEC;
}
