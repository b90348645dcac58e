// Package explain makes the sentences of an api.Why: for each cause what is so, why, and what can be done. A program reads the causes' values,
// people read these.
//
// It must never look anything up, nor be read by what decides.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/api"
)

// Say makes the sentences of all causes.
func Say(w *api.Why) {
	for i := range w.Causes {
		c := &w.Causes[i]
		if say := sayings[c.Reason]; say != nil {
			s := say(w, c)
			c.What, c.Why, c.Do = s.what, s.why, s.do
		}
	}
}

// saying is what is said of a cause: what is so, why, and what can be done by whoever can (api.Cause.Who).
type saying struct{ what, why, do string }

// sayings are the sentences, by reason.
var sayings = map[api.CauseReason]func(*api.Why, *api.Cause) saying{
	api.CauseNotScheduled: func(_ *api.Why, c *api.Cause) saying {
		return saying{what: "the scheduler of " + c.Laptop + " has not come to it yet"}
	},
	api.CauseGated: func(_ *api.Why, c *api.Cause) saying {
		return saying{"it is not to be scheduled yet", "its scheduling gates: " + listed(c.Names), "whoever set a gate takes it away (spec.schedulingGates)"}
	},
	api.CauseTethered: func(_ *api.Why, c *api.Cause) saying {
		return saying{c.Laptop + " places no pods of its own now", "a company's cluster decides what it runs", "`kith untether` takes it back; `kith status` says how that stands"}
	},
	api.CauseScheduler: func(_ *api.Why, c *api.Cause) saying {
		return saying{"the scheduler finds no node for it", c.Said, "look at what the pod asks of nodes and of pods beside it: affinity, spreading, ports of the host"}
	},
	api.CauseNotOffloaded: func(w *api.Why, c *api.Cause) saying {
		return saying{"it may not go to " + cmp.Or(listed(c.Names), c.Laptop, "peers"), "namespace " + w.Namespace + " is not offloaded",
			"`kith offload " + w.Namespace + "` lets its pods run at peers"}
	},
	api.CauseStaysHome: func(w *api.Why, c *api.Cause) saying {
		return saying{"it may not go to " + c.Laptop, "namespace " + w.Namespace + " is offloaded with strategy local", "`kith offload " + w.Namespace + " --strategy both` lets its pods go"}
	},
	api.CauseComesHome: func(w *api.Why, c *api.Cause) saying {
		return saying{"it may not go to " + c.Laptop, "namespace " + w.Namespace + " is being brought home", "when it is home, `kith offload " + w.Namespace + "` lets its pods go again"}
	},
	api.CauseNotThisPeer: func(w *api.Why, c *api.Cause) saying {
		return saying{"it may not go to " + c.Laptop, "namespace " + w.Namespace + " is offloaded to " + listed(c.Names),
			fmt.Sprintf("`kith offload %s --peers %s` lets its pods go there too", w.Namespace, strings.Join(append(c.Names[:len(c.Names):len(c.Names)], c.Laptop), ","))}
	},
	api.CauseBudget: func(w *api.Why, c *api.Cause) saying {
		budget, until := "its", "its period ends"
		if len(c.Names) == 2 {
			budget, until = c.Names[0], c.Names[1]
		}
		if c.Detail == string(api.ClosedOtherCurrency) {
			return saying{"it may not go to " + c.Laptop, "namespace " + w.Namespace + " has a budget of " + budget + ", and " + c.Laptop + " is priced in another currency",
				"`kith offload " + w.Namespace + " --budget` sets another budget, or, left out, none"}
		}
		return saying{"it may not go to " + c.Laptop, "namespace " + w.Namespace + " has spent its budget of " + budget,
			"it may again at " + until + "; `kith offload " + w.Namespace + " --budget` sets another budget"}
	},
	api.CauseMadeBefore: func(_ *api.Why, c *api.Cause) saying {
		return saying{"it may not go to " + c.Laptop, "the pod was made before its namespace was offloaded", "delete it: what made it makes another one, which may; a pod that nothing makes again is to be applied again"}
	},
	api.CauseVolumeHome: func(w *api.Why, c *api.Cause) saying {
		return saying{"it may not go to " + c.Laptop, "it has a volume claim, and volumes of namespace " + w.Namespace + " are at home",
			"`kith offload " + w.Namespace + " --strategy both`, where that is not so, lets it run at home; with `--volumes anywhere` the volumes of new claims may be at peers"}
	},
	api.CauseDeviceHome: func(_ *api.Why, c *api.Cause) saying {
		return saying{"it may not go to " + c.Laptop, "it has a resource claim (" + listed(c.Names) + "), and the devices that one stands for are of this laptop's own nodes",
			"let it run at home, or have it request a device of a peer by name, as nvidia.com/gpu, without a claim"}
	},
	api.CauseOnlyAbroad: func(w *api.Why, c *api.Cause) saying {
		return saying{"it may not run on " + c.Laptop, "it is of namespace " + w.Namespace + ", which is offloaded with strategy remote", "`kith offload " + w.Namespace + " --strategy both` lets pods that are made from then on run here too"}
	},
	api.CauseNoPeer: func(_ *api.Why, c *api.Cause) saying {
		if len(c.Names) == 0 {
			return saying{"no peer gives this laptop anything", "none is within reach that could be asked", "`kith peers` lists who is near"}
		}
		return saying{"no peer gives this laptop anything", "within reach, and not asked: " + listed(c.Names), "`kith peer " + c.Names[0] + "` asks"}
	},
	api.CauseNoRoom: func(_ *api.Why, c *api.Cause) saying {
		if c.Peer {
			return saying{c.Laptop + " has no room for it in the contract", shorts(c), askMore(c)}
		}
		if tooLarge(c) {
			return saying{c.Laptop + " is too small for it", shorts(c), "have it ask for less"}
		}
		return saying{c.Laptop + " has no room for it", shorts(c), "have it ask for less, or end other pods here (`kubectl top pods -A` shows what they use)"}
	},
	api.CauseRoomAsked: func(_ *api.Why, c *api.Cause) saying {
		policy := listed(c.Names)
		if c.Who == api.WhoNobody {
			return saying{"PeeringPolicy " + policy + " asks for room", c.Said, ""}
		}
		return saying{"PeeringPolicy " + policy + " asks nobody for room now", c.Said,
			"`kubectl describe peeringpolicy " + policy + "` has what peers answered; its spec.grow says how far it may go"}
	},
	api.CauseCordoned: func(_ *api.Why, c *api.Cause) saying {
		if c.Peer {
			return saying{"node kith-" + c.Laptop + " takes no new pods", "it is cordoned here", "`kubectl uncordon kith-" + c.Laptop + "`"}
		}
		return saying{c.Laptop + " takes no new pods", "its node is cordoned", "`kubectl uncordon` with the node's name (`kubectl get nodes`)"}
	},
	api.CauseClosed: func(_ *api.Why, c *api.Cause) saying {
		return saying{c.Laptop + " takes no new pods", "none of its own nodes does: " + cmp.Or(c.Detail, "unknown"), "`kubectl get nodes` there, and `kubectl uncordon`"}
	},
	api.CauseNoNetwork: func(w *api.Why, c *api.Cause) saying {
		return saying{"there is no network to " + c.Laptop, "the contract is without one, and the pod does not say that it needs none", "`kith offload " + w.Namespace + " --network none`, and make the pod again"}
	},
	api.CauseNodeNotReady: func(_ *api.Why, c *api.Cause) saying {
		return saying{"the node of " + c.Laptop + " is not ready", c.Said, "`kith doctor` there looks closer"}
	},
	api.CauseTainted: func(_ *api.Why, c *api.Cause) saying {
		return saying{c.Laptop + " keeps it away", "its node has the taint " + listed(c.Names) + ", which the pod does not tolerate", "tolerate it in the pod, or take the taint away"}
	},
	api.CauseNotSelected: func(_ *api.Why, c *api.Cause) saying {
		asks := "its node affinity leaves that node out"
		if len(c.Names) > 0 {
			asks = "it selects nodes with " + listed(c.Names)
		}
		return saying{"it does not want to be on " + c.Laptop, asks, "change nodeSelector or affinity in the pod"}
	},
	api.CauseAvoided: func(_ *api.Why, c *api.Cause) saying {
		return saying{"it avoids " + c.Laptop, "within the last hour " + c.Laptop + " refused one like it (`kubectl get events` has its reason)", "allow there what was refused; it is tried again after an hour"}
	},
	api.CauseClaimMissing: func(w *api.Why, c *api.Cause) saying {
		return saying{"it waits for the volume claim " + listed(c.Names), "namespace " + w.Namespace + " has none of that name", "make the PersistentVolumeClaim, or name another in the pod"}
	},
	api.CauseClaimPending: func(w *api.Why, c *api.Cause) saying {
		return saying{"it waits for the volume claim " + listed(c.Names), "the claim is " + c.Detail, "`" + kubectl(w, "describe pvc %s", strings.Join(c.Names, " ")) + "` says what for"}
	},
	api.CauseVolumeMoves: func(w *api.Why, c *api.Cause) saying {
		claim := w.Namespace + "/" + listed(c.Names)
		return saying{"it waits for its volume", "that of " + claim + " is being moved to " + c.Detail + ", and no pod may have it meanwhile", "wait, or have it stay: `kith volume move " + claim + " --cancel`"}
	},
	api.CauseVolumeElse: func(_ *api.Why, c *api.Cause) saying {
		if c.Detail != "" {
			return saying{"it cannot be on " + c.Laptop, "the volume of its claim " + listed(c.Names) + " is at " + c.Detail, "let it run there: `kith peer " + c.Detail + "` asks where there is no contract"}
		}
		return saying{"it cannot be on " + c.Laptop, "the volume of its claim " + listed(c.Names) + " is on another node", "let it run where its volume is"}
	},
	api.CauseNoClass: func(_ *api.Why, c *api.Cause) saying {
		claim := "its claim " + listed(c.Names)
		if c.Detail == "" {
			return saying{"it cannot be on " + c.Laptop, "there is no storage for the volume of " + claim + " there", "`kith peer " + c.Laptop + " --storage AMOUNT` asks for some"}
		}
		return saying{"it cannot be on " + c.Laptop, claim + " is to have a volume of storage class " + c.Detail + ", and there is none of that there",
			"at a peer `kith peer NAME --storage " + c.Detail + "=AMOUNT` asks for some; at home make a StorageClass of that name"}
	},
	api.CauseUnschedulable: func(_ *api.Why, c *api.Cause) saying {
		return saying{c.Laptop + " finds no node of its own for it", c.Said, "end pods there, or share less: it granted more than it has room for now"}
	},
	api.CauseWakes: func(_ *api.Why, c *api.Cause) saying {
		if c.Who == api.WhoNobody {
			return saying{c.Laptop + " sleeps, and is being woken", c.Said, ""}
		}
		return saying{c.Laptop + " sleeps, and is not woken", c.Said, "ask its owner to open it"}
	},
	api.CauseUnreachable: func(w *api.Why, c *api.Cause) saying {
		s := saying{c.Laptop + " cannot be reached", c.Said, "see that it is on, awake and on a network; `kith doctor " + c.Laptop + "` here tells where it fails"}
		if w.Laptop == c.Laptop {
			s.why = strings.Join(nonEmpty(c.Said, "what runs there may run on"), "; ")
		}
		return s
	},
	api.CauseTunnelDown: func(_ *api.Why, c *api.Cause) saying {
		return saying{"no packet passes between " + c.Laptop + " and here", "the tunnel is down", "`kith doctor " + c.Laptop + "` tells where it fails"}
	},
	api.CauseTwinRefused: func(w *api.Why, c *api.Cause) saying {
		return saying{c.Laptop + " makes no namespace for " + w.Namespace, c.Said, "`kith offload` shows the name that it would have there"}
	},
	api.CauseNotSent: func(_ *api.Why, c *api.Cause) saying {
		return saying{"it did not get to " + c.Laptop, c.Said, "it is tried again; make what it names as missing"}
	},
	api.CauseAsking: func(_ *api.Why, c *api.Cause) saying {
		return saying{what: c.Laptop + " was asked to run it and has not answered yet"}
	},
	api.CauseRefused: func(w *api.Why, c *api.Cause) saying {
		return saying{c.Laptop + " refuses it: " + c.Detail, strings.Join(nonEmpty(c.Said, shorts(c)), "\n"), refusedDo(w, c)}
	},
	api.CauseRemaking: func(_ *api.Why, c *api.Cause) saying {
		return saying{what: c.Laptop + " makes it again", why: "it was lost there"}
	},
	api.CauseLost: func(_ *api.Why, c *api.Cause) saying {
		return saying{c.Laptop + " no longer has it", "a pod that never restarts is not made again", "make another one"}
	},
	api.CauseRuns: func(_ *api.Why, c *api.Cause) saying {
		return saying{what: "it runs on " + c.Laptop}
	},
	api.CauseStarts: func(_ *api.Why, c *api.Cause) saying {
		return saying{what: c.Laptop + " starts it"}
	},
	api.CauseDone: func(_ *api.Why, c *api.Cause) saying {
		return saying{what: "it has done its work on " + c.Laptop}
	},
	api.CauseDeleted: func(_ *api.Why, c *api.Cause) saying {
		s := saying{what: "it was deleted, and ends" + at(" on ", c.Laptop)}
		if len(c.Names) > 0 {
			s.why, s.do = "it is kept by its finalizers "+listed(c.Names), "whoever set a finalizer takes it away when its work is done"
		}
		return s
	},
	api.CauseEvicted: func(_ *api.Why, c *api.Cause) saying {
		do := "free disk or memory there; what made the pod makes another one"
		if c.Who == api.WhoNobody {
			do = ""
		}
		return saying{c.Laptop + " evicted it", c.Said, do}
	},
	api.CauseRejected: func(_ *api.Why, c *api.Cause) saying {
		return saying{c.Laptop + " ended it: " + c.Detail, c.Said, "what made the pod makes another one; one that nothing makes again is to be applied again"}
	},
	api.CauseImagePulling: func(_ *api.Why, c *api.Cause) saying {
		if t := c.Transfer; t != nil {
			return saying{what: c.Laptop + " takes its image " + listed(c.Names) + " from here", why: progress(t)}
		}
		return saying{what: c.Laptop + " gets its image", why: c.Said}
	},
	api.CauseImage: func(_ *api.Why, c *api.Cause) saying {
		do := "correct the name of the image, or load it here: `kith image load`"
		if c.Peer {
			do += "; from here " + c.Laptop + " gets it too"
		}
		return saying{fmt.Sprintf("%s does not get the image %s of container %s: %s", c.Laptop, listed(c.Names), c.Container, c.Detail), c.Said, do}
	},
	api.CauseVolume: func(_ *api.Why, c *api.Cause) saying {
		return saying{c.Laptop + " cannot mount a volume of it", c.Said, "make what the volume refers to: a ConfigMap, a Secret, a claim"}
	},
	api.CauseSandbox: func(_ *api.Why, c *api.Cause) saying {
		return saying{c.Laptop + " cannot make a place for its containers", c.Said, "`kith doctor` there looks closer"}
	},
	api.CauseConfig: func(_ *api.Why, c *api.Cause) saying {
		do := "correct the container: its command, image or what it is given"
		if c.Detail == "CreateContainerConfigError" {
			do = "make what it refers to, a Secret or a ConfigMap mostly"
		}
		return saying{c.Laptop + " cannot make container " + c.Container + ": " + c.Detail, c.Said, do}
	},
	api.CauseInitRuns: func(w *api.Why, c *api.Cause) saying {
		return saying{"its init container " + c.Container + " has not ended yet, and the others wait for it", "", logs(w, c, "")}
	},
	api.CauseCrashes: func(w *api.Why, c *api.Cause) saying {
		return saying{fmt.Sprintf("container %s ends again and again: %s, %s", c.Container, exited(c), times(c.Restarts)), c.Said, logs(w, c, " --previous")}
	},
	api.CauseExited: func(w *api.Why, c *api.Cause) saying {
		return saying{"container " + c.Container + " ended: " + exited(c), c.Said, logs(w, c, "")}
	},
	api.CauseRestarted: func(w *api.Why, c *api.Cause) saying {
		return saying{fmt.Sprintf("container %s was started anew lately, %s: it had ended with %s", c.Container, times(c.Restarts), exited(c)), c.Said, logs(w, c, " --previous")}
	},
	api.CauseProbe: func(w *api.Why, c *api.Cause) saying {
		return saying{"container " + c.Container + " runs on " + c.Laptop + ", and does not say that it is ready", c.Said, logs(w, c, "")}
	},
	api.CauseGate: func(_ *api.Why, c *api.Cause) saying {
		return saying{"its containers are ready, and its readiness gates are not", c.Said, "see to whatever sets these conditions"}
	},
	api.CauseOther: func(_ *api.Why, c *api.Cause) saying {
		return saying{strings.Join(nonEmpty("it does not run"+at(" on ", c.Laptop), c.Detail), ": "), c.Said, ""}
	},
	api.CauseNoPods: func(*api.Why, *api.Cause) saying {
		return saying{"it has no pods", "none was made yet, or what makes them does not work", "`kith status` says whether this laptop's cluster decides"}
	},
	api.CauseScaledDown: func(*api.Why, *api.Cause) saying {
		return saying{"it has no pods", "it asks for none (spec.replicas: 0)", "`kubectl scale --replicas 1` asks for one"}
	},
	api.CauseNotMade: func(_ *api.Why, c *api.Cause) saying {
		return saying{"its pods are not made: " + c.Detail, c.Said, "correct what is refused"}
	},
}

// refusedDo is what can be done about a provider's no, by its word for it (core/provide/hosting/grants).
func refusedDo(w *api.Why, c *api.Cause) string {
	there := "there"
	if !c.Peer {
		there = "here"
	}
	switch c.Detail {
	case "ContractExceeded":
		return askMore(c)
	case "PodSecurity", "SysctlForbidden":
		return "allow more " + there + " (`kith share --pod-security`); or have the pod ask for nothing that is refused"
	case "ImageNotAllowed":
		return "spec.images of the SharingPolicy " + there + " says which images may come in"
	case "QuotaExceeded":
		return "a ResourceQuota " + there + " is used up: raise it, or end pods"
	case "NotFenced", "NoNetwork":
		return "`kith doctor` " + there + " tells why"
	case "NoContract":
		return "`kith peers` says how it stands with " + c.Laptop
	case "NotSupported", "Invalid", "PodOSNotSupported":
		return "change the pod, or keep it at home: nodeAffinity on kith.dev/virtual DoesNotExist"
	}
	return ""
}

// askMore is how more is asked of a peer: with what its contract has to grant for the pod to fit.
func askMore(c *api.Cause) string {
	flags := ""
	for _, s := range c.Short {
		need := resource.MustParse(s.Of)
		need.Sub(resource.MustParse(s.Free))
		need.Add(resource.MustParse(s.Asked))
		switch s.Resource {
		case api.CPU, api.Memory, api.Pods, api.EphemeralStorage:
			flags += fmt.Sprintf(" --%s %s", s.Resource, need.String())
		default:
			flags += fmt.Sprintf(" --resource %s=%s", s.Resource, need.String())
		}
	}
	or := "have the pod ask for less"
	if len(c.Short) == 1 && c.Short[0].Resource == api.Pods {
		or = "end pods of yours there"
	}
	return fmt.Sprintf("`kith peer %s%s` asks its owner for more; or %s", c.Laptop, flags, or)
}

// tooLarge reports whether a pod asks for more than there is at all.
func tooLarge(c *api.Cause) bool {
	return slices.ContainsFunc(c.Short, func(s api.Short) bool {
		asked, of := resource.MustParse(s.Asked), resource.MustParse(s.Of)
		return asked.Cmp(of) > 0
	})
}

// shorts says of what there is too little: "cpu: asks for 2, 0.3 of 4 are free".
func shorts(c *api.Cause) string {
	var parts []string
	for _, s := range c.Short {
		amount := func(q string) string { return rounded(s.Resource, q) }
		parts = append(parts, fmt.Sprintf("%s: it asks for %s, and %s of %s is free", s.Resource, amount(s.Asked), amount(s.Free), amount(s.Of)))
	}
	return strings.Join(parts, "\n")
}

// rounded writes a quantity to two digits, in the unit that it fills.
func rounded(name, amount string) string {
	q, err := resource.ParseQuantity(amount)
	if err != nil || name != api.Memory && name != api.EphemeralStorage {
		return api.Decimal(amount)
	}
	n, unit := q.AsApproximateFloat64(), 0
	for ; n >= 1024 && unit < 4; unit++ {
		n /= 1024
	}
	text := strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0")
	return text + []string{"", "Ki", "Mi", "Gi", "Ti"}[unit]
}

func exited(c *api.Cause) string {
	if c.ExitCode == nil {
		return cmp.Or(c.Detail, "nobody saw how")
	}
	words := fmt.Sprintf("exit code %d", *c.ExitCode)
	switch c.Detail {
	case "", "Error", "Completed":
		return words
	case "OOMKilled":
		return words + " (OOMKilled: it used more memory than its limit)"
	}
	return words + " (" + c.Detail + ")"
}

func times(n int32) string {
	if n == 1 {
		return "started anew once"
	}
	return fmt.Sprintf("started anew %d times", n)
}

// logs is where a container's words are read. Those of a guest are its home's.
func logs(w *api.Why, c *api.Cause, flags string) string {
	if w.Guest != "" {
		return "`kith why` at home says more"
	}
	return "`" + kubectl(w, "logs %s -c %s%s", w.Name, c.Container, flags) + "` shows what it says"
}

// kubectl is a command about the pod.
func kubectl(w *api.Why, format string, args ...any) string {
	return "kubectl -n " + w.Namespace + " " + fmt.Sprintf(format, args...)
}

func listed(names []string) string { return strings.Join(names, ", ") }

func at(word, place string) string {
	if place == "" {
		return ""
	}
	return word + place
}

func nonEmpty(words ...string) (out []string) {
	for _, word := range words {
		if word != "" {
			out = append(out, word)
		}
	}
	return out
}

// progress says how far a transfer is.
func progress(t *api.ImageTransfer) string {
	said := fmt.Sprintf("%d MB are there", t.Sent/1_000_000)
	if t.Size > 0 {
		said = fmt.Sprintf("%d of %d MB are there", t.Sent/1_000_000, t.Size/1_000_000)
	}
	if left := t.Left(); left > 0 {
		said += fmt.Sprintf(", %s left", left)
	}
	return said
}
