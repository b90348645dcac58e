// Package rules is the table of what may be written of Kith: each rule as kith or the local API refuses what breaks it, and as the API
// server does. A story of the lab tries both, docs/guards.md shows the table. Tests call it, nothing else does.
package rules

import (
	"strings"

	"kith.dev/docs"
)

// Rule is one rule. In its texts {alice} is the ID of the cluster that is asked, {mistyped} a peer's with one character changed.
type Rule struct {
	Of   string // kind and field
	Says string
	// Kith is what kith is called with, or a call of the local API ("PATCH /v1/policies/default {…}"); empty when neither can say such a thing.
	Kith     string
	KithSays string
	// Object is a manifest that the API server refuses, and Refusal a part of why.
	Object  string
	Refusal string
	// By is the admission policy that refuses; empty: the schema of the kind.
	By string
}

func object(kind, name, spec string) string {
	return "{apiVersion: kith.dev/v1alpha1, kind: " + kind + ", metadata: {name: " + name + "}, spec: {" + spec + "}}"
}

func offloading(namespace, spec string) string {
	return "{apiVersion: kith.dev/v1alpha1, kind: NamespaceOffloading, metadata: {name: offloading, namespace: " + namespace + "}, spec: {" + spec + "}}"
}

func sharing(spec string) string {
	return object("SharingPolicy", "tried", "amounts: {cpu: '1'}, "+spec)
}

func amounts(of string) string { return object("SharingPolicy", "tried", "amounts: {"+of+"}") }

func reflection(kind string) string {
	return object("ReflectionPolicy", "tried", "kinds: [{"+kind+"}]")
}

func peering(spec string) string { return object("PeeringPolicy", "tried", spec) }

func tether(spec string) string { return object("TetherPolicy", "tried", spec) }

func peer(spec string) string { return object("Peer", "tried", "id: "+ID+", "+spec) }

func asked(resources string) string {
	return peer("request: {attempt: 1, resources: {" + resources + "}}")
}

// ID is that of a cluster that nobody has.
const ID = "FUD4MS3-253NQMN-XZOT4VO-76EO3H2-XFOEFYQ-MDHQGNP-IANIVU5-CDQEFAP"

const (
	namespaces = "namespaces.kith.dev"
	selectors  = "selectors.kith.dev"
	peers      = "peers.kith.dev"
)

// All are the rules.
var All = []Rule{
	{"NamespaceOffloading", "the namespace is not of Kubernetes or of Kith (kube-, kith-)", "offload kube-system", "a namespace of your own workloads",
		offloading("kube-system", ""), "namespaces of Kubernetes and of Kith themselves (kube-, kith-) are not offloaded", namespaces},
	{"Namespace, label kith.dev/offload", "as above", "offload kube-public", "a namespace of your own workloads",
		"{apiVersion: v1, kind: Namespace, metadata: {name: kube-public, labels: {kith.dev/offload: 'true'}}}", "namespaces of Kubernetes and of Kith themselves (kube-, kith-) are not offloaded", namespaces},
	{"NamespaceOffloading", "the namespace is none that Kith made for a peer's", "offload lent", "a namespace of your own workloads",
		offloading("lent", ""), "a namespace that Kith made for a peer's is not offloaded", namespaces},
	{"NamespaceOffloading", "there is one for a namespace, named offloading", "", "", "{apiVersion: kith.dev/v1alpha1, kind: NamespaceOffloading, metadata: {name: tried, namespace: default}}",
		"there is one NamespaceOffloading per namespace, named offloading", ""},
	{"NamespaceOffloading spec.strategy", "one of three", "offload default --strategy everywhere", "both, remote or local", offloading("default", "strategy: Everywhere"), "spec.strategy: Unsupported value", ""},
	{"NamespaceOffloading spec.mapping", "one of two", `PUT /v1/offloads/default {"mapping":"other"}`, "default or sameName", offloading("default", "mapping: Other"), "spec.mapping: Unsupported value", ""},
	{"NamespaceOffloading spec.budget", "an amount in a currency, for an hour, day, week or month", `offload default --budget 5EUR/year`, "5 EUR/day",
		offloading("default", "budget: {amount: '5', period: Day}"), "spec.budget.amount", ""},
	{"NamespaceOffloading spec.peers", "names that Peers can have", "offload default --peers No_body", "No_body", offloading("default", "peers: [No_body]"), "spec.peers[0]", ""},

	{"SharingPolicy spec.amounts", "there is one", `PATCH /v1/policies/tried {"onlyAmounts":true}`, "spec.amounts", amounts(""), "spec.amounts", ""},
	{"SharingPolicy spec.amounts", "named as resources are", "share --policy tried --resource a//b=1", "a//b", amounts("a//b: '1'"), "a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io", ""},
	{"SharingPolicy spec.amounts", "not of Kubernetes' own domain", "share --policy tried --resource kubernetes.io/gpu=1", "kubernetes.io/gpu", amounts("kubernetes.io/gpu: '1'"), "not of the domain kubernetes.io", ""},
	{"SharingPolicy spec.amounts", "devices have a domain", "share --policy tried --resource widget=1", "widget", amounts("widget: '1'"), "a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io", ""},
	{"SharingPolicy spec.amounts", "devices are shared whole", "share --policy tried --resource nvidia.com/gpu=500m", "a whole number", amounts("nvidia.com/gpu: 500m"), "devices are shared in whole numbers, or as a share of them such as 50%", ""},
	{"SharingPolicy spec.amounts", "storage of a class is an amount", "share --policy tried --storage fast=50%", "of how much it would be a part is not known",
		amounts("fast.storageclass.storage.k8s.io/requests.storage: 50%"), "storage of a class is shared as an amount, such as 20Gi: of how much it would be a part is not known", ""},
	{"SharingPolicy spec.amounts", "classes have a name of at most 63 bytes", "share --policy tried --storage " + strings.Repeat("a", 64) + "=1Gi", "a resource name such as cpu",
		amounts(strings.Repeat("a", 64) + ".storageclass.storage.k8s.io/requests.storage: 1Gi"), "a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io", ""},
	{"SharingPolicy spec.amounts", "a quantity, without an exponent", "share --policy tried --cpu 1e9", "a Kubernetes quantity", amounts("cpu: '1e9'"), "spec.amounts.cpu", ""},
	{"SharingPolicy spec.amounts", "not negative", "share --policy tried --memory=-4Gi", "memory", amounts("memory: '-4Gi'"), "spec.amounts.memory", ""},
	{"SharingPolicy spec.amounts", "a share is from 0% to 100%", "share 120%", "from 0% to 100%", amounts("cpu: 120%"), "spec.amounts.cpu", ""},
	{"SharingPolicy spec.amounts", "32 at most", `PATCH /v1/policies/tried {"amounts":{` + many(`"x%/a":"1"`) + `}}`, "at most 32", amounts(many("x%/a: '1'")), "Too many", ""},
	{"SharingPolicy spec.amounts", "a share of what is free is one", "share --cpu 2%of_free", "cpu", amounts("cpu: '2 of free'"), "spec.amounts.cpu", ""},
	{"SharingPolicy spec.reserve", "named as resources are", "share --reserve a//b=1", "a//b", sharing("reserve: {a//b: '1'}"), "a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io", ""},
	{"SharingPolicy spec.reserve", "not a share of what is free", `PATCH /v1/policies/tried {"reserve":{"cpu":"20% of free"}}`, "a share of all there is such as 20%", sharing("reserve: {cpu: 20% of free}"),
		"a reserve is an amount, or a share of all that there is, such as 20%", ""},
	{"SharingPolicy spec.maxPerPeer", "named as resources are", "share --max-per-peer a//b=1", "a//b", sharing("maxPerPeer: {a//b: '1'}"), "a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io", ""},
	{"SharingPolicy spec.maxPeers", "from 1 to 1000", "share --max-peers 1001", "from 1 to 1000", sharing("maxPeers: 0"), "spec.maxPeers", ""},
	{"SharingPolicy spec.prices", "of resources that have one", "share --policy tried --price pods=1EUR", "pods have none", sharing("prices: {pods: '1 EUR'}"), "a key must be the name of a resource that has a price, such as cpu, memory or nvidia.com/gpu: pods have none", ""},
	{"SharingPolicy spec.prices", "a decimal number and a currency", "share --policy tried --price cpu=cheap", "such as 0.02EUR", sharing("prices: {cpu: cheap}"), "spec.prices.cpu", ""},
	{"SharingPolicy spec.prices", "in one currency", "share --policy tried --price cpu=1EUR,memory=1USD", "in EUR, as the price of cpu is", sharing("prices: {cpu: '1 EUR', memory: '1 USD'}"), "all prices must be in one currency", ""},
	{"SharingPolicy spec.prices", "32 at most", `PATCH /v1/policies/tried {"prices":{` + many(`"x%.a/b":"1 EUR"`) + `}}`, "at most 32", sharing("prices: {" + many("x%.a/b: '1 EUR'") + "}"), "Too many", ""},
	{"SharingPolicy spec.podSecurity", "one of three", "share --pod-security lax", "restricted, baseline or privileged", sharing("podSecurity: lax"), "spec.podSecurity: Unsupported value", ""},
	{"SharingPolicy spec.deviceRuntimeClass", "the name of a RuntimeClass", "share --device-runtime-class No_class", "the name of a RuntimeClass", sharing("deviceRuntimeClass: No_class"), "spec.deviceRuntimeClass", ""},
	{"SharingPolicy spec.peers", "the name of a Peer, or an ID", "share --policy tried --cpu 1 --to no_body", "no_body", sharing("peers: [no_body]"), "spec.peers[0]", ""},
	{"SharingPolicy spec.peerSelector", "keys of labels", `PATCH /v1/policies/tried {"amounts":{"cpu":"1"},"selector":"a//b=c"}`, "a label selector", sharing("peerSelector: {matchLabels: {a//b: c}}"),
		"spec.peerSelector: a key must be that of a label: a name, or a domain, a slash and a name", selectors},
	{"SharingPolicy spec.peerSelector", "values of labels", `PATCH /v1/policies/tried {"amounts":{"cpu":"1"},"selector":"a=-"}`, "a label selector", sharing("peerSelector: {matchLabels: {a: '-'}}"),
		"spec.peerSelector: a value must be that of a label: at most 63 letters, digits, -, _ and .", selectors},
	{"SharingPolicy spec.peerSelector", "operators that there are", `PATCH /v1/policies/tried {"amounts":{"cpu":"1"},"selector":"a like (b)"}`, "a label selector", sharing("peerSelector: {matchExpressions: [{key: a, operator: Like, values: [b]}]}"),
		"spec.peerSelector: an operator must be In or NotIn, with values, or Exists or DoesNotExist, without", selectors},
	{"SharingPolicy spec.contractValidity", "from 1h to 87600h", "", "", sharing("contractValidity: 1m"), "must be a duration from 1h to 87600h (ten years)", ""},
	{"SharingPolicy spec.hours[].days", "days of the week", "share --hours Moon", "hours such as", sharing("hours: [{days: [Moon], from: '09:00', to: '17:00'}]"), "spec.hours[0].days[0]", ""},
	{"SharingPolicy spec.hours[].from", "a time of day", "share --hours 9-17:00", "hours such as", sharing("hours: [{from: '24:00', to: '17:00'}]"), "spec.hours[0].from", ""},
	{"SharingPolicy spec.hours[].to", "a time of day, or 24:00", "share --hours 09:00-25:00", "hours such as", sharing("hours: [{from: '09:00', to: '25:00'}]"), "spec.hours[0].to", ""},
	{"SharingPolicy spec.hours[]", "they end later than they begin", "share --hours 09:00-09:00", "later than they begin", sharing("hours: [{from: '09:00', to: '09:00'}]"), "hours that end when they begin are none: a whole day is from 00:00 to 24:00", ""},
	{"SharingPolicy spec.timeZone", "a name of the IANA's list", "share --time-zone Europe/Nowhere", "spec.timeZone", sharing("timeZone: 'Europe Berlin'"), "spec.timeZone", ""},
	{"SharingPolicy spec.only.batteryAbove", "from 1 to 99", "share --battery-above 100", "from 1 to 99", sharing("only: {batteryAbove: 100}"), "spec.only.batteryAbove", ""},
	{"SharingPolicy spec.only.idleFor", "from 1m to 24h", "share --idle-for 10s", "from 1m to 24h", sharing("only: {idleFor: 10s}"), "must be a duration from 1m to 24h", ""},
	{"SharingPolicy spec.keepVolumes", "from 1h to 8760h", "share --keep-volumes 1m", "from 1h to 365d", sharing("keepVolumes: 1m"), "must be a duration from 1h to 8760h (a year)", ""},
	{"SharingPolicy spec.wake", "from 1 to 24", "share --wake 25/day", "from 1/day to 24/day", sharing("wake: 25"), "spec.wake", ""},
	{"SharingPolicy spec.notice", "from 10s to 720h", "share --notice 1s", "from 10s to 30d", sharing("notice: 1s"), "must be a duration from 10s to 720h (thirty days)", ""},
	{"SharingPolicy spec.reofferFrom", "names of Peers, IDs, or * for all", "share --reoffer-from no_body", "no_body", sharing("reofferFrom: [no_body]"), "spec.reofferFrom[0]", ""},
	{"SharingPolicy spec.reoffer", "Allow only without reofferFrom", `PATCH /v1/policies/tried {"amounts":{"cpu":"1"},"reoffer":true,"reofferFrom":["*"]}`, "goes on no further", sharing("reoffer: Allow, reofferFrom: ['*']"),
		"what is offered on from others goes on no further: reoffer and reofferFrom exclude each other", ""},
	{"SharingPolicy spec.tunnel", "Deny only without reoffer, reofferFrom and services", `PATCH /v1/policies/tried {"amounts":{"cpu":"1"},"noTunnel":true,"reoffer":true}`, "need a tunnel", sharing("tunnel: Deny, reoffer: Allow"),
		"reoffer, reofferFrom and services need a tunnel: they and tunnel Deny exclude each other", ""},
	{"SharingPolicy spec.tunnel", "Allow or Deny", "", "", sharing("tunnel: Never"), "spec.tunnel", ""},
	{"SharingPolicy spec.reofferAs", "One, or with a reofferFrom Each", `PATCH /v1/policies/tried {"amounts":{"cpu":"1"},"each":true}`, "One where there is no reofferFrom", sharing("reofferAs: Each"),
		"there is nobody to tell of without reofferFrom: reofferAs is One", ""},
	{"SharingPolicy spec.margin", "a percentage up to 999.99%, with reofferFrom", "share --margin 10", "from 0% to 999.99%", sharing("margin: 10%"), "a margin is on what is offered on from others: it goes with reofferFrom", ""},
	{"SharingPolicy spec.network.bandwidth", "bits a second from 100k to 99G", "share --bandwidth fast", "from 100k to 99G", sharing("network: {bandwidth: {egress: 20}}"), "spec.network.bandwidth.egress", ""},
	{"SharingPolicy spec.namespaces.reserved", "names, in which a * stands for any characters", "", "", sharing("namespaces: {reserved: ['A b']}"), "spec.namespaces.reserved[0]", ""},
	{"SharingPolicy spec.images.rate", "bytes per second, such as 5M", "", "", sharing("images: {rate: 50%}"), "spec.images.rate", ""},
	{"SharingPolicy spec.images.registries", "as they stand in names of images", "", "", sharing("images: {registries: ['a b']}"), "spec.images.registries[0]", ""},
	{"SharingPolicy spec.images.present", "names of images", "", "", sharing("images: {present: ['a b']}"), "spec.images.present[0]", ""},
	{"SharingPolicy spec.kinds[].group", "neither Kith's own nor definitions of kinds", "", "", sharing("kinds: [{group: kith.dev, resource: contracts}]"), "objects of Kith and definitions of kinds do not travel", ""},
	{"SharingPolicy spec.kinds[].group", "not built in: it has a domain", "", "", sharing("kinds: [{group: apps, resource: deployments}]"), "spec.kinds[0].group", ""},

	{"ReflectionPolicy spec.kinds[].group", "neither Kith's own nor definitions of kinds", "", "", reflection("group: apiextensions.k8s.io, resource: customresourcedefinitions"),
		"objects of Kith and definitions of kinds do not travel", ""},
	{"ReflectionPolicy spec.kinds[].fields", "neither metadata nor status", "", "", reflection("group: example.com, resource: widgets, fields: [metadata.labels]"), "metadata and status do not go", ""},

	{"PeeringPolicy spec.peers", "names of Peers, or IDs", "", "", peering("amounts: {cpu: '1'}, peers: [no_body]"), "spec.peers[0]", ""},
	{"PeeringPolicy spec.peerSelector", "a label selector", "", "", peering("amounts: {cpu: '1'}, peerSelector: {matchExpressions: [{key: a, operator: In}]}"),
		"spec.peerSelector: an operator must be In or NotIn, with values, or Exists or DoesNotExist, without", selectors},
	{"PeeringPolicy spec.amounts", "named as resources are", "", "", peering("amounts: {widget: '1'}"), "a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io", ""},
	{"PeeringPolicy spec.amounts", "no shares", "", "", peering("amounts: {cpu: 50%}"), "a peer is asked for an amount, such as 2 or 4Gi, not for a share of what it has", ""},
	{"PeeringPolicy spec.maxPeers", "1 or more", "", "", peering("amounts: {cpu: '1'}, maxPeers: 0"), "spec.maxPeers", ""},
	{"PeeringPolicy spec.maxPrices", "a decimal number and a currency", "", "", peering("amounts: {cpu: '1'}, maxPrices: {cpu: cheap}"), "spec.maxPrices", ""},
	{"PeeringPolicy spec.grow", "how far", "", "", peering("amounts: {cpu: '1'}, grow: {}"), "spec.grow.maxAmounts", ""},
	{"PeeringPolicy spec.grow.maxAmounts", "named as resources are", "", "", peering("amounts: {cpu: '1'}, grow: {maxAmounts: {widget: '1'}}"), "a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io", ""},
	{"PeeringPolicy spec.grow.maxAmounts", "no shares", "", "", peering("amounts: {cpu: '1'}, grow: {maxAmounts: {cpu: 50%}}"), "a peer is asked for an amount, such as 2 or 4Gi, not for a share of what it has", ""},
	{"PeeringPolicy spec.grow.maxPeers", "1 or more", "", "", peering("amounts: {cpu: '1'}, grow: {maxAmounts: {cpu: '2'}, maxPeers: 0}"), "spec.grow.maxPeers", ""},
	{"PeeringPolicy spec.grow.giveBackAfter", "1m to 720h", "", "", peering("amounts: {cpu: '1'}, grow: {maxAmounts: {cpu: '2'}, giveBackAfter: 1s}"), "must be a duration from 1m to 720h", ""},

	{"Peer metadata.name", "fits into the name of a node", "", "", object("Peer", strings.Repeat("x", 59), "id: "+ID), "the name of a Peer must be at most 58 of a-z, 0-9 and -: its node is called kith-NAME", ""},
	{"Peer spec.id", "an ID", `POST /v1/peers/bob/ask {"id":"nonsense"}`, "a whole cluster ID", object("Peer", "tried", "id: nonsense"), "spec.id", ""},
	{"Peer spec.id", "not mistyped", `POST /v1/peers/bob/ask {"id":"{mistyped}"}`, "a whole cluster ID", object("Peer", "tried", "id: '{mistyped}'"), "mistyped: its check characters do not fit", ""},
	{"Peer spec.id", "of another cluster", "peer add 127.0.0.1:6450", "this cluster itself answers there", object("Peer", "tried", "id: '{alice}'"), "spec.id: a Peer must be another cluster: this one has that ID", peers},
	{"Peer spec.endpoints", "host:port", "peer add not:an:address", "not:an:address", peer("endpoints: ['not:an:address']"), "spec.endpoints[0]", ""},
	{"Peer spec.endpoints", "a port that there is", "peer add 192.0.2.12:99999", "99999", peer("endpoints: ['192.0.2.12:99999']"), "the port must be 1 to 65535", ""},
	{"Peer spec.endpoints", "of one machine", "peer add 224.0.0.1:6450", "one machine", peer("endpoints: ['224.0.0.1:6450']"), "must be the address of one machine", ""},
	{"Peer spec.request.resources", "named as resources are", "peer bob --resource a//b=1", "a//b", asked("a//b: '1'"), "a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io", ""},
	{"Peer spec.request.resources", "not of Kubernetes' own domain", "peer bob --resource kubernetes.io/gpu=1", "kubernetes.io/gpu", asked("kubernetes.io/gpu: '1'"), "not of the domain kubernetes.io", ""},
	{"Peer spec.request.resources", "devices have a domain", "peer bob --resource widget=1", "widget", asked("widget: '1'"), "a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io", ""},
	{"Peer spec.request.resources", "quantities, without an exponent", "peer bob --cpu 1e-99999999", "cpu", asked("cpu: '1e-99999999'"), "spec.request.resources: an amount must be a quantity such as 2, 500m or 4Gi", peers},
	{"Peer spec.request.resources", "1m of cpu or more", "peer bob --cpu 0", "1m or more", asked("cpu: '0'"), "spec.request.resources: of cpu, ask for 1m or more, such as 500m or 2", peers},
	{"Peer spec.request.resources", "1Mi of memory or more", "peer bob --memory 4", "1Mi or more", asked("memory: 4"),
		"spec.request.resources: of memory and storage, ask for 1Mi or more, such as 512Mi or 4Gi: without a unit it is a number of bytes", peers},
	{"Peer spec.request.resources", "1Mi of a storage class or more", "peer bob --storage fast=4", "1Mi or more", asked("fast.storageclass.storage.k8s.io/requests.storage: 4"),
		"spec.request.resources: of memory and storage, ask for 1Mi or more, such as 512Mi or 4Gi: without a unit it is a number of bytes", peers},
	{"Peer spec.request.resources", "a whole number of all else", "peer bob --pods 1500m", "a whole number", asked("pods: 1500m"),
		"spec.request.resources: of all but cpu, memory and storage, ask for a whole number, 1 or more", peers},
	{"Peer spec.request.resources", "32 at most", `POST /v1/peers/bob/ask {"resources":{` + many(`"x%/a":"1"`) + `}}`, "at most 32", asked(many("x%/a: '1'")), "Too many", ""},
	{"Peer spec.request.confirm.code", "six digits", "peer bob --code 12", "six digits", peer("request: {confirm: {attempt: 1, code: '12'}}"), "spec.request.confirm.code", ""},
	{"Peer spec.request.confirm.id", "not mistyped", `POST /v1/peers/bob/ask {"id":"{mistyped}"}`, "a whole cluster ID", peer("request: {confirm: {attempt: 1, id: '{mistyped}'}}"), "mistyped: its check characters do not fit", ""},
	{"Peer spec.request.confirm", "says something", "", "", peer("request: {confirm: {attempt: 1}}"), "must say something: a code, an id, terms, reject or withdraw", ""},

	{"TetherPolicy spec.peers", "names of Peers, or IDs", "", "", tether("peers: [no_body]"), "spec.peers[0]", ""},
	{"TetherPolicy spec.peerSelector", "a label selector", "", "", tether("peerSelector: {matchExpressions: [{key: a, operator: In}]}"), "spec.peerSelector: an operator must be In or NotIn, with values, or Exists or DoesNotExist, without", selectors},
	{"TetherPolicy spec.namespaces[].name", "not of Kubernetes or of Kith (kube-, kith-)", "", "", tether("namespaces: [{name: kube-system}]"), "namespaces of Kubernetes (kube-) and of Kith (kith-) are not for laptops", ""},
	{"TetherPolicy spec.namespaces[].clusterRole", "neither all power nor that of Kubernetes' own parts", "", "", tether("namespaces: [{name: team, clusterRole: cluster-admin}]"),
		"cluster-admin and the roles of Kubernetes' own parts (system:) are not for laptops: admin is the most", ""},
	{"TetherPolicy spec.node.labels", "keys of labels", "", "", tether("node: {labels: {a//b: c}}"), "a key must be that of a label: a name, or a domain, a slash and a name", ""},
	{"TetherPolicy spec.node.labels", "not of Kubernetes or Kith", "", "", tether("node: {labels: {kubernetes.io/arch: c}}"), "keys of kubernetes.io, k8s.io and kith.dev are not for policies, nor is type", ""},
	{"TetherPolicy spec.node.taints", "not of Kubernetes or Kith", "", "", tether("node: {taints: [{key: kith.dev/peer, effect: NoSchedule}]}"), "keys of kubernetes.io, k8s.io and kith.dev are not for policies", ""},
	{"TetherPolicy spec.node.taints", "effects that there are", "", "", tether("node: {taints: [{key: a, effect: Never}]}"), "the effect of a taint is NoSchedule, PreferNoSchedule or NoExecute", ""},
}

// Good are objects that the API server takes: the rules leave room for what kithd and people write.
var Good = []string{
	peer("request: {attempt: 1, resources: {storage: 1Gi, fast.storageclass.storage.k8s.io/requests.storage: 1536Mi}}"),
	sharing("reserve: {fast.storageclass.storage.k8s.io/requests.storage: 1Gi}, maxPerPeer: {fast.storageclass.storage.k8s.io/requests.storage: 1Gi}, prices: {fast.storageclass.storage.k8s.io/requests.storage: '0.1 EUR'}"),
	amounts("storage: 10Gi, fast.storageclass.storage.k8s.io/requests.storage: 2Gi"),
	peer("endpoints: ['[fe80::1%eth0]:6450', '192.0.2.12:65535', 'bob.example.org:6450', '[2001:db8::1]:6450'], request: {attempt: 1, resources: {cpu: 500m, memory: 1536Mi, pods: 20, nvidia.com/gpu: 1, ephemeral-storage: 1E}}"),
	peer("request: {attempt: 1, confirm: {attempt: 1, id: " + ID + "}}"),
	sharing("peers: [bob, " + ID + "], peerSelector: {matchLabels: {trust: family}, matchExpressions: [{key: a, operator: NotIn, values: [b]}, {key: c, operator: Exists}]}"),
	amounts("cpu: 50%, memory: 4Gi, nvidia.com/gpu: '1', nvidia.com/mig-1g.5gb: 50%, smarter-devices/video0: '2', hugepages-2Mi: 1Gi, pods: '0'"),
	sharing("deviceRuntimeClass: nvidia"),
	sharing("kinds: [{group: example.com, resource: widgets, most: 10, definition: Allow}], network: {direct: Allow}"),
	reflection("group: example.com, resource: widgets, version: v1beta1, direction: Out, fields: [spec.size, data], peers: [bob], selector: {matchLabels: {a: b}}"),
	offloading("default", "peers: [bob]"),
	peering("peers: [bob, " + ID + "], peerSelector: {}, amounts: {cpu: 500m, nvidia.com/gpu: '1'}, maxPeers: 256, maxPrices: {cpu: '0 EUR', memory: '0.000000001 EUR'}"),
	tether("peerSelector: {}, namespaces: [{name: 'sandbox-{laptop}', clusterRole: admin}, {name: team}]"),
	"{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {kith.dev/offload: 'true'}}}",
	object("SharingPolicy", "tried", "amounts: {cpu: 50% of free, memory: 4Gi}, maxPerPeer: {cpu: 10% of free}, reserve: {cpu: 20%, nvidia.com/gpu: '1'}, maxPeers: 1000, only: {}, "+
		"hours: [{days: [Sun], from: '23:59', to: '00:00'}, {from: '00:00', to: '24:00'}], timeZone: America/Argentina/Buenos_Aires"),
}

// Cookbook are the policies of docs/policies.md.
func Cookbook() ([]string, error) {
	page, err := docs.Pages.ReadFile("policies.md")
	return docs.Manifests(string(page)), err
}

// many are 33 entries of a map, of which each has another number for %.
func many(entry string) string {
	var all []string
	for i := range 33 {
		all = append(all, strings.Replace(entry, "%", strings.Repeat("y", i), 1))
	}
	return strings.Join(all, ", ")
}

// Table is All as docs/guards.md has it.
func Table() string {
	var b strings.Builder
	b.WriteString("| of | rule | kith, or the local API | by |\n|---|---|---|---|\n")
	for _, r := range All {
		kith := "cannot say otherwise"
		if method, _, call := strings.Cut(r.Kith, " /"); call {
			kith = "`" + method + " " + strings.Fields(r.Kith)[1] + "`"
		} else if r.Kith != "" {
			kith = "`kith " + r.Kith + "`"
		}
		by := "schema"
		if r.By != "" {
			by = "`" + r.By + "`"
		}
		b.WriteString("| " + r.Of + " | " + r.Says + " | " + kith + " | " + by + " |\n")
	}
	return b.String()
}
