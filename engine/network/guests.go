package network

// GuestRuntime is the name of the RuntimeClass, and of containerd's runtime behind it, that puts a pod into the
// network of guests. It runs the same runc.
const GuestRuntime = "kith-guest"

// NVIDIARuntime is the name of a RuntimeClass, and of the runtime behind it, whose containers are shown NVIDIA's devices by NVIDIA's runtime, and
// GuestNVIDIARuntime that of guests which are. They are there where that runtime is.
const (
	NVIDIARuntime      = "nvidia"
	GuestNVIDIARuntime = GuestRuntime + "-" + NVIDIARuntime
)

// GuestGroup is the group of the links that lead to guests (RTM_SETLINK, IFLA_GROUP; "kg" in ASCII). The fence of
// kithd, kith.dev/core/provide/fence, knows guests by it.
const GuestGroup = 0x6b67

// guestNetwork gives each guest a link of its own that ends at this host: no bridge that it shares with the owner's
// pods, so whatever it sends is routed, and shows by the link it came over that it is a guest's. Its address is out of the range that
// this laptop agreed on with the guest's home, which kith-mark finds by the pod's namespace. kith-mark also marks
// that link, and waits for the guest's NetworkPolicies, before its first program runs.
func guestNetwork(o Options) m {
	return m{
		"cniVersion": "1.0.0",
		"name":       "kith-guests",
		"plugins": []m{
			{"type": "ptp", "ipMasq": false, "mtu": o.MTU, "ipam": m{
				"type": "kith-mark", "networks": o.GuestNetworks, "dataDir": o.CNIData, "routes": []m{{"dst": "0.0.0.0/0"}}, "routes6": []m{{"dst": "::/0"}},
			}},
			{"type": "kith-mark", "group": GuestGroup, "policies": o.Policies},
			{"type": "portmap", "backend": "nftables", "capabilities": m{"portMappings": true}},
		},
	}
}
