// What programs at tc need of the kernel's interface (linux/bpf.h, linux/pkt_cls.h), as of Linux 5.12. With headers of the
// machine that compiles, the object would differ from machine to machine.
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef long long __s64;

#define SEC(name) __attribute__((section(name), used))
#define inline inline __attribute__((always_inline))
#define NULL ((void *)0)

// The members of a map's definition, which the loader reads from the types (BTF).
#define __uint(name, value) int (*name)[value]
#define __type(name, type) typeof(type) *name
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_F_MMAPABLE (1 << 10)

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define htons(x) ((__u16)((__u16)(x) << 8 | (__u16)(x) >> 8))
#define ntohl(x) __builtin_bswap32(x)
#else
#define htons(x) ((__u16)(x))
#define ntohl(x) ((__u32)(x))
#endif
#define htonl(x) ntohl(x)

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define IPPROTO_ICMP 1
#define IPPROTO_UDP 17

#define TC_ACT_UNSPEC -1 // other programs may look at the packet too
#define TC_ACT_SHOT 2

// The packet, as programs see it; the kernel turns each access into one to its own structure.
struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
	__u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end, napi_id, family;
	__u32 remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port, data_meta;
	__u64 flow_keys, tstamp;
	__u32 wire_len, gso_segs;
	__u64 sk;
	__u32 gso_size;
};

#define BPF_F_RECOMPUTE_CSUM 1
#define BPF_F_PSEUDO_HDR 0x10
#define BPF_F_MARK_MANGLED_0 0x20 // 0 is no checksum (RFC 768)

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static long (*bpf_skb_store_bytes)(struct __sk_buff *skb, __u32 offset, const void *from, __u32 len, __u64 flags) = (void *)9;
static long (*bpf_l3_csum_replace)(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to, __u64 size) = (void *)10;
static long (*bpf_l4_csum_replace)(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to, __u64 flags) = (void *)11;
static long (*bpf_redirect)(__u32 ifindex, __u64 flags) = (void *)23;
static long (*bpf_skb_load_bytes)(const struct __sk_buff *skb, __u32 offset, void *to, __u32 len) = (void *)26;
static __s64 (*bpf_csum_diff)(const void *from, __u32 from_size, const void *to, __u32 to_size, __u32 seed) = (void *)28;
static long (*bpf_skb_change_head)(struct __sk_buff *skb, __u32 len, __u64 flags) = (void *)43;
static long (*bpf_redirect_neigh)(__u32 ifindex, void *params, int plen, __u64 flags) = (void *)152;

// What programs need that lead packets to other machines.
#define BPF_MAP_TYPE_HASH 1
#define BPF_F_NO_PREALLOC (1 << 0)
#define BPF_F_RDONLY_PROG (1 << 7)

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_ICMPV6 58

// What bpf_redirect_neigh takes for a next hop other than that of the packet's destination (struct bpf_redir_neigh).
struct next_hop {
	__u32 family;
	__u32 address[4];
};
