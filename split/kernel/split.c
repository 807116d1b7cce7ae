//go:build ignore

// The programs that split a session: out where packets leave a device, in where they arrive on one, for IPv4 and IPv6.
// Package kernel says what they do; `make bpf` compiles them.

#include "heddle_bpf.h"

char _license[] SEC("license") = "Apache-2.0";

// What a program is loaded for. The kernel knows these when it checks the program, and removes what they exclude.
volatile const __u32 server[4]; // address, in the order of the network; the first word only for IPv4
volatile const __u16 port;      // in the order of the network
volatile const __u32 mark;    // of decided packets; its last byte is 0, and becomes the member
volatile const __u64 start;   // of unit 0, CLOCK_MONOTONIC in nanoseconds
volatile const __u64 period;  // of a unit in nanoseconds, or 0
volatile const __u32 packets; // of a unit, or 0
volatile const __u32 header;  // length of the device's link header
volatile const __u32 divert;  // a device that takes runs of segments apart, to which all that is undecided goes first, or 0

// The mark is drawn anew for each session, and nobody takes its word: device and address are compared as well.
#define MARK_MASK 0xffffff00
#define ETHERNET_HEADER 14
#define MAX_MEMBERS 32
#define PLAN_SIZE (1 << 16)
#define SENDERS (1 << 16)

enum drop {
	STOPPED,   // the deadline passed: too few paths, or the process that renews it is dead
	UNPLANNED, // the plan has no such unit
	FRAGMENT,  // a fragment, or other headers before UDP's: no port to tell whose it is
	MALFORMED, // shorter than its headers
	STRAY,     // marked as decided, but not on its path
	TOO_BIG,   // larger than the MTU that holds for all paths, in either direction
	RUN,       // a run of segments where packets are counted
	FAILED,    // the kernel could not rewrite it
	DROPS,
	MATCHED, OTHER, // no drops
};

struct state {
	__u64 deadline; // CLOCK_MONOTONIC in nanoseconds; after it nothing leaves
	__u64 taken;    // packets, where units are packets
	__u64 last;     // packet of the session; CLOCK_MONOTONIC in nanoseconds, as all times
	__u64 paused;   // the end of its last pause
	__u64 trial;    // a member plus one that shall carry packets whatever the plan says, or 0
	__u64 trial_until; // until then the trial takes packets, also after the deadline
	__u64 burst;    // 0 if the trial takes one packet, else how many it may still take of a burst
	__u64 drops[DROPS];
};

// A trial with a burst takes its acknowledgements, as a server answers at once what is larger. Package backend says why.
#define BURST 128
#define PAUSE 100000000ull // between bursts, in nanoseconds
#define ACKNOWLEDGEMENT 256 // bytes of UDP payload, at most

struct tally {
	__u64 packets, bytes;
};

struct member {
	__u32 index; // of the device; 0 while the member is down
	__u32 mtu; // the smallest of all members
	__u32 source[4]; // the path's own address
	struct tally up, down;
};

// What the programs and their process share. All are arrays, so that none can overflow, and all but the last are mapped
// into the process.

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct state);
} heddle_state SEC(".maps");

// How packets leave by each path, and what was counted.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_MEMBERS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct member);
} heddle_members SEC(".maps");

// Which path each unit takes, in a ring: the unit plus one, and a byte for the member. A unit that is not there is dropped.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLAN_SIZE);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} heddle_plan SEC(".maps");

// The source address that the program of each local port had, so that answers find back to it.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SENDERS);
	__type(key, __u32);
	__type(value, __u32[4]);
} heddle_senders SEC(".maps");

// A QUIC handshake, which keeps its path until it is confirmed (RFC 9000, section 9). All times are CLOCK_MONOTONIC in
// nanoseconds, 0 for never.
struct handshake {
	__u64 began;  // the first Initial
	__u64 flight; // the first Handshake packet, a round trip later
	__u64 last;   // the last long header
	__u64 member;
};

// The last handshake of each local port. Only the client's packets are seen, so the handshake is done once the time has passed
// in which the server answers the last of them.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SENDERS);
	__type(key, __u32);
	__type(value, struct handshake);
} heddle_handshakes SEC(".maps");

// A handshake that takes longer begins again on the path of its unit: it may have begun on a path that is dead.
#define HANDSHAKE_LIMIT 3000000000ull
#define QUIC_DATAGRAM 1200 // of an Initial, at least (RFC 9000, section 14.1)
#define QUIC_VERSION2 0x6b3343cf

struct packet {
	__u32 at;     // of the UDP header, in the packet
	__u32 ip[10]; // the header without options
	__u16 udp[4]; // ports, length and checksum
};

// Where the addresses are in an IP header, in words (RFC 791, RFC 8200). Each family has programs of its own, for which the
// compiler knows v6.
#define SOURCE (v6 ? 2 : 3)
#define TARGET (v6 ? 6 : 4)

static inline void *element(void *map, __u32 key) { return bpf_map_lookup_elem(map, &key); }

static inline int same(int v6, const __u32 *a, const __u32 *b)
{
	__u32 difference = a[0] ^ b[0];
	if (v6)
		difference |= (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]);
	return difference == 0;
}

// segments is the number of datagrams in the packet. The compiler must not compute the field's address earlier: the kernel
// refuses a pointer to within the packet's context.
static inline __u32 segments(struct __sk_buff *skb)
{
	asm volatile("" : "+r"(skb));
	return skb->gso_segs ? skb->gso_segs : 1;
}

_Static_assert(!(DROPS & (DROPS - 1)), "drop cuts off higher bits");
static inline int drop(struct __sk_buff *skb, enum drop why)
{
	struct state *s = element(&heddle_state, 0);
	if (s) { // the kernel takes an offset that is another number on each path of root alone, so it does not learn the number
		__u32 at = s->trial, same = at;
		asm volatile("" : "+r"(same));
		__sync_fetch_and_add(&s->drops[(why + at - same) & (DROPS - 1)], segments(skb));
	}
	return TC_ACT_SHOT;
}

static inline void count(struct __sk_buff *skb, struct packet *p, struct tally *t)
{
	__sync_fetch_and_add(&t->packets, segments(skb));
	__sync_fetch_and_add(&t->bytes, skb->len - p->at - 8);
}

// match reads the headers of a datagram to the server, or, where back is set, from it. Fragments to the server are dropped:
// all but the first have no port. The bytes are copied: direct access would see only what is not in pages, which of a run
// of segments may be nothing.
static inline int match(int v6, struct __sk_buff *skb, struct packet *p, int back)
{
	__u8 *ip = (__u8 *)p->ip;
	__u32 words[4] = {server[0], server[1], server[2], server[3]};
	if (skb->protocol != (v6 ? htons(ETH_P_IPV6) : htons(ETH_P_IP)) || bpf_skb_load_bytes(skb, header, ip, v6 ? 40 : 20))
		return OTHER;
	if (!same(v6, p->ip + (back ? SOURCE : TARGET), words))
		return OTHER;
	if (v6) {
		switch (ip[6]) { // hop-by-hop options, routing, fragment, authentication and destination options may have UDP behind them
		case 0: case 43: case 44: case 51: case 60:
			return FRAGMENT;
		}
		if (ip[6] != IPPROTO_UDP)
			return OTHER;
		p->at = header + 40;
	} else {
		if (ip[9] != IPPROTO_UDP)
			return OTHER;
		if (*(__u16 *)(ip + 6) & htons(0x3fff)) // more fragments, or an offset
			return FRAGMENT;
		p->at = header + 4 * (ip[0] & 15);
	}
	if (bpf_skb_load_bytes(skb, p->at, p->udp, 8))
		return MALFORMED;
	return p->udp[back ? 0 : 1] == port ? MATCHED : OTHER;
}

// mend_run mends what a run of segments has in place of a checksum: the sum over the pseudo header, to which each segment
// adds its own. That is so also where the kernel did not mark the packet so, as on the way to a device that computes no
// checksums; the helper would then take it for a complete one.
static inline long mend_run(struct __sk_buff *skb, struct packet *p, __u32 *old, const __u32 *new, __u32 length)
{
	__u32 sum = bpf_csum_diff(old, length, new, length, p->udp[3]);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	p->udp[3] = sum;
	return bpf_skb_store_bytes(skb, p->at + 6, &p->udp[3], 2, 0);
}

// mend_datagram mends the checksum of UDP with its pseudo header (RFC 768; RFC 8200, section 8.1), whether it is complete
// or left to the device.
static inline long mend_datagram(struct __sk_buff *skb, struct packet *p, __u32 *old, const __u32 *new, __u32 length)
{
	__s64 difference = bpf_csum_diff(old, length, new, length, 0);
	return bpf_l4_csum_replace(skb, p->at + 6, 0, difference, BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0);
}

// replace puts an address into the packet in the place of the one at that word of the IP header, and mends the checksums.
// IPv6 has no checksum of its own that would make up for the address in the device's sum over the packet.
static inline long replace(int v6, struct __sk_buff *skb, struct packet *p, __u32 word, const __u32 *new)
{
	__u32 length = v6 ? 16 : 4, *old = p->ip + word;
	if (skb->gso_size ? mend_run(skb, p, old, new, length) : mend_datagram(skb, p, old, new, length))
		return -1;
	if (!v6 && bpf_l3_csum_replace(skb, header + 10, old[0], new[0], 4))
		return -1;
	return bpf_skb_store_bytes(skb, header + 4 * word, new, length, v6 ? BPF_F_RECOMPUTE_CSUM : 0);
}

// too_big reports whether a datagram is larger than the narrowest path carries. Programs search for the largest size on all
// paths at once, so what one path alone carries must not pass. A run counts by its segments.
static inline int too_big(struct __sk_buff *skb, struct packet *p, struct member *l)
{
	return (skb->gso_size ? skb->gso_size + p->at + 8 : skb->len) - header > l->mtu;
}

// tried gives the member plus one whose trial takes the packet, or 0.
static inline __u64 tried(struct __sk_buff *skb, struct packet *p, struct state *s, __u64 now)
{
	int begins = now >= s->last + PAUSE; // another processor's last packet may be later
	s->last = now;
	if (begins)
		s->paused = now;
	__u64 trial = s->trial, left = s->burst, all = segments(skb);
	if (!trial || now > s->trial_until)
		return 0;
	if (!left)
		return __sync_lock_test_and_set(&s->trial, 0);
	int small = (skb->gso_size ? skb->gso_size : skb->len - p->at - 8) <= ACKNOWLEDGEMENT;
	if (left == BURST ? !begins : begins || !small) { // it waits for a burst, or its burst is over
		if (left != BURST)
			s->trial = 0;
		return 0;
	}
	s->burst = left > all ? left - all : 0;
	if (left <= all || !small)
		s->trial = 0;
	return trial;
}

static inline int stopped(void)
{
	struct state *s = element(&heddle_state, 0);
	return !s || bpf_ktime_get_ns() > s->deadline;
}

// pick gives the member of the packet, or -1 less the reason why it is dropped.
static inline int pick(struct __sk_buff *skb, struct packet *p)
{
	struct state *s = element(&heddle_state, 0);
	__u64 now = bpf_ktime_get_ns(), unit = 0;
	if (!s)
		return -1 - STOPPED;
	__u64 trial = tried(skb, p, s, now);
	if (!trial && now > s->deadline)
		return -1 - STOPPED;
	if (packets) {
		if (skb->gso_segs > 1)
			return -1 - RUN;
		unit = __sync_fetch_and_add(&s->taken, 1) / packets;
	} else if (period) {
		unit = (now - start) / period;
	}
	if (trial)
		return trial - 1;
	__u64 *planned = element(&heddle_plan, unit & (PLAN_SIZE - 1));
	if (!planned)
		return -1 - UNPLANNED;
	__u64 plan = *planned; // the process may write another
	return plan >> 8 == unit + 1 ? plan & 0xff : -1 - UNPLANNED;
}

// Kinds of QUIC packets with long headers (RFC 9000, section 17.2).
enum kind { INITIAL = 0, HANDSHAKE = 2 };

static inline int quic_kind(__u8 first, __u32 version)
{
	int kind = first >> 4 & 3;
	return version == QUIC_VERSION2 ? (kind - 1) & 3 : kind; // RFC 9369, section 3.2
}

// skip_number reads a variable-length integer (RFC 9000, section 16) at an offset, and gives the offset behind it, 0 on failure.
static inline __u32 skip_number(struct __sk_buff *skb, __u32 at, __u32 *number)
{
	__u8 b[4] = {};
	if (bpf_skb_load_bytes(skb, at, b, 1))
		return 0;
	switch (b[0] >> 6) {
	case 0:
		*number = b[0];
		return at + 1;
	case 1:
		*number = (b[0] & 63) << 8;
		return bpf_skb_load_bytes(skb, at, b, 2) ? 0 : (*number |= b[1], at + 2);
	case 2:
		*number = 0;
		return bpf_skb_load_bytes(skb, at, b, 4) ? 0 : (*number = b[2] << 8 | b[3], at + 4); // a datagram has no more bytes
	}
	return 0;
}

// behind_initial gives the first byte of the packet behind an Initial in one datagram, 0 for none. The client's second flight
// mostly comes so.
static inline __u8 behind_initial(struct __sk_buff *skb, __u32 at)
{
	__u8 length;
	at += 5;
	for (int i = 0; i < 2; i++) { // connection ids
		if (bpf_skb_load_bytes(skb, at, &length, 1))
			return 0;
		at += 1 + length;
	}
	__u32 number;
	for (int i = 0; i < 2; i++) { // the token, and the rest of the packet
		at = skip_number(skb, at, &number);
		if (!at)
			return 0;
		at += number;
	}
	return bpf_skb_load_bytes(skb, at, &length, 1) ? 0 : length;
}

// waits reports whether a handshake waits for the answer to its last long header. A client without Handshake packets yet has
// no other packets to send. A quarter of the round trip is for one that takes longer. Another processor's packet may be later than now.
static inline int waits(struct handshake *h, __u64 now)
{
	if (!h->began || now > h->began + HANDSHAKE_LIMIT)
		return 0;
	__u64 round_trip = h->flight - h->began;
	return !h->flight || now < h->last + round_trip + round_trip / 4;
}

// keep gives the member of a packet of a QUIC handshake, and number for all other packets.
static inline int keep(struct __sk_buff *skb, struct packet *p, int number)
{
	__u8 start[5]; // the first byte and the version (RFC 8999, section 5.1)
	struct handshake *h = element(&heddle_handshakes, p->udp[0]);
	if (!h || bpf_skb_load_bytes(skb, p->at + 8, start, sizeof(start)))
		return number;
	__u64 now = bpf_ktime_get_ns();
	__u32 version = (__u32)start[1] << 24 | start[2] << 16 | start[3] << 8 | start[4];
	int isLong = start[0] & 0x80 && version;
	int waiting = waits(h, now);
	if (isLong) {
		int kind = quic_kind(start[0], version);
		if (kind == INITIAL) {
			__u8 next = behind_initial(skb, p->at + 8);
			if (next & 0x80)
				kind = quic_kind(next, version);
		}
		if (!waiting && kind == INITIAL && start[0] & 0x40 && skb->len - p->at - 8 >= QUIC_DATAGRAM) {
			h->began = now;
			h->flight = 0;
			h->member = number;
		}
		if (kind == HANDSHAKE && !h->flight)
			h->flight = now;
		h->last = now;
		waiting = waits(h, now); // again, if the client repeats something
	}
	if (!waiting || (!isLong && !h->flight))
		return number;
	struct member *l = element(&heddle_members, h->member);
	return l && l->index ? h->member : number;
}

// remember keeps the address that the program of this port sent from. Where two programs share a port on two addresses
// the last one to send gets the answers.
static inline int remember(int v6, struct packet *p)
{
	__u32 *sender = element(&heddle_senders, p->udp[0]);
	if (!sender)
		return -1;
	__u32 *source = p->ip + SOURCE;
	if (!same(v6, sender, source)) {
		sender[0] = source[0];
		if (v6) {
			sender[1] = source[1];
			sender[2] = source[2];
			sender[3] = source[3];
		}
	}
	return 0;
}

// add_header gives a packet of a device without an Ethernet header an empty one.
static inline long add_header(struct __sk_buff *skb)
{
	return header ? 0 : bpf_skb_change_head(skb, ETHERNET_HEADER, 0);
}

// decide picks the member, gives the packet its address and sends it by its device.
static inline int decide(int v6, struct __sk_buff *skb, struct packet *p)
{
	int number = pick(skb, p);
	if (number < 0)
		return drop(skb, -1 - number);
	int kept = keep(skb, p, number);
	if (kept != number && stopped()) // a stopped session has trials only, and these leave by no other path
		return drop(skb, STOPPED);
	number = kept;
	struct member *l = element(&heddle_members, number);
	if (!l)
		return drop(skb, UNPLANNED);
	if (!l->index)
		return drop(skb, STRAY);
	if (too_big(skb, p, l))
		return drop(skb, TOO_BIG);
	if (remember(v6, p) || (!same(v6, p->ip + SOURCE, l->source) && replace(v6, skb, p, SOURCE, l->source)))
		return drop(skb, FAILED);
	count(skb, p, &l->up);
	skb->mark = mark | number;
	if (add_header(skb))
		return drop(skb, FAILED);
	// The kernel looks the neighbour up itself. Were it told, packets that wait for a neighbour's address would keep the
	// route that they were made for, and go to the other path's neighbour in the end.
	return bpf_redirect_neigh(l->index, NULL, 0, 0);
}

// send lets a decided packet to the server pass on the device and with the address of its member, and nowhere else. It
// decides the others, or sends them to where that is done.
static inline int send(int v6, struct __sk_buff *skb)
{
	struct packet p = {};
	int found = match(v6, skb, &p, 0);
	if (found == OTHER)
		return TC_ACT_UNSPEC;
	if (found != MATCHED)
		return drop(skb, found == FRAGMENT ? FRAGMENT : MALFORMED);
	if ((skb->mark & MARK_MASK) == mark) {
		struct member *l = element(&heddle_members, skb->mark & ~MARK_MASK);
		if (!l || skb->ifindex != l->index || !same(v6, p.ip + SOURCE, l->source))
			return drop(skb, STRAY);
		return TC_ACT_UNSPEC;
	}
	if (!divert)
		return decide(v6, skb, &p);
	if (add_header(skb))
		return drop(skb, FAILED);
	return bpf_redirect(divert, 0);
}

// receive gives answers from the server to a member's address the address of the program that they are for.
static inline int receive(int v6, struct __sk_buff *skb)
{
	struct packet p = {};
	if (match(v6, skb, &p, 1) != MATCHED)
		return TC_ACT_UNSPEC;
	struct member *found = NULL;
	for (__u32 i = 0; i < MAX_MEMBERS; i++) {
		struct member *l = element(&heddle_members, i);
		if (!l)
			return TC_ACT_UNSPEC;
		if (skb->ifindex == l->index && same(v6, p.ip + TARGET, l->source)) {
			found = l;
			break;
		}
	}
	if (!found)
		return TC_ACT_UNSPEC;
	if (too_big(skb, &p, found))
		return drop(skb, TOO_BIG);
	count(skb, &p, &found->down);
	__u32 *sender = element(&heddle_senders, p.udp[1]);
	if (!sender || same(v6, p.ip + TARGET, sender) || !(sender[0] | sender[1])) // none, the same, or no program sent from this port
		return TC_ACT_UNSPEC;
	return replace(v6, skb, &p, TARGET, sender) ? drop(skb, FAILED) : TC_ACT_UNSPEC;
}

SEC("tc") int heddle_out4(struct __sk_buff *skb) { return send(0, skb); }
SEC("tc") int heddle_out6(struct __sk_buff *skb) { return send(1, skb); }
SEC("tc") int heddle_in4(struct __sk_buff *skb) { return receive(0, skb); }
SEC("tc") int heddle_in6(struct __sk_buff *skb) { return receive(1, skb); }
