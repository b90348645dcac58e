package localapi

import (
	"context"
	"net/http"
	"strconv"

	"kith.dev/core/api"
)

// route is one call of the local API. A long one reports its progress.
type route struct {
	method, path string
	long         bool
	answer       func(c *call) (any, error)
}

const short, long = false, true

// call is what a route gets to see of a request.
type call struct {
	Backend
	ctx    context.Context
	r      *http.Request
	w      http.ResponseWriter
	sent   []byte             // the request's body
	dry    api.DryRun         // nothing is to be written; of the routes that drily has
	report func(api.Progress) // of long ones
}

// done is the answer of calls that have nothing to say.
type done struct{}

// routes is the whole local API, except for the streams (serveEvents, serveSnapshots).
var routes = []route{
	{"GET", api.PathVersion, short, plain(Backend.Version)},
	{"GET", api.PathStatus, short, plain(Backend.Status)},
	{"GET", api.PathKubeconfig, short, kubeconfig},

	{"GET", api.PathPeers, short, list(Backend.Peers)},
	{"GET", api.PathPeer, short, about("peer", Backend.Peer)},
	{"POST", api.PathPeers, short, addPeer},
	{"GET", api.PathDNSRecords, short, func(c *call) (any, error) {
		options, err := api.ParseDNSRecordsOptions(c.r.URL.Query())
		if err != nil {
			return nil, err
		}
		return c.DNSRecords(c.ctx, options)
	}},
	{"DELETE", api.PathPeer, short, named("peer", func(c *call, peer string) (any, error) { return done{}, c.ForgetPeer(c.ctx, peer, c.dry) })},
	{"POST", api.PathAsk, long, named("peer", ask)},
	{"POST", api.PathConfirm, short, named("peer", confirm)},
	{"POST", api.PathWithdraw, short, about("peer", Backend.Withdraw)},
	{"POST", api.PathWake, short, about("peer", Backend.Wake)},
	{"POST", api.PathEnd, long, named("peer", func(c *call, peer string) (any, error) {
		options, err := api.ParseEndOptions(c.r.URL.Query())
		if err != nil {
			return nil, err
		}
		return c.Unpeer(c.ctx, peer, options, c.report)
	})},

	{"GET", api.PathRequests, short, list(Backend.Requests)},
	{"GET", api.PathRequest, short, about("id", Backend.Request)},
	{"POST", api.PathAccept, short, named("id", accept)},
	{"POST", api.PathDecline, short, about("id", Backend.Decline)},

	{"GET", api.PathContracts, short, list(Backend.Contracts)},
	{"GET", api.PathContract, short, about("contract", Backend.Contract)},
	{"POST", api.PathVerify, short, func(c *call) (any, error) {
		in, err := body[api.Contract](c)
		if err != nil {
			return nil, err
		}
		return c.VerifyContract(c.ctx, in)
	}},

	{"GET", api.PathReceipts, short, func(c *call) (any, error) {
		options, err := api.ParseReceiptOptions(c.r.URL.Query())
		if err != nil {
			return nil, err
		}
		accounts, err := c.Receipts(c.ctx, options)
		return append(api.List[api.Account]{}, accounts...), err
	}},
	{"GET", api.PathReceipt, short, about("contract", Backend.ReceiptFile)},

	{"GET", api.PathCatalogue, short, func(c *call) (any, error) {
		options := api.ParseCatalogueOptions(c.r.URL.Query())
		if options.Peer != "" {
			if err := checkName("peer", options.Peer); err != nil {
				return nil, err
			}
		}
		all, err := c.Catalogue(c.ctx, options)
		return append(api.List[api.Listed]{}, all...), err
	}},
	{"GET", api.PathPolicies, short, list(Backend.Policies)},
	{"GET", api.PathOffered, short, about("peer", Backend.Offered)},
	{"PATCH", api.PathPolicy, short, named("policy", setPolicy)},
	{"POST", api.PathUndo, short, func(c *call) (any, error) { return c.Undo(c.ctx, c.dry) }},
	{"POST", api.PathAwake, short, func(c *call) (any, error) {
		in, err := body[api.AwakeOptions](c)
		if err == nil {
			err = in.Check()
		}
		if err != nil {
			return nil, err
		}
		return c.KeepAwake(c.ctx, in)
	}},

	{"GET", api.PathImages, short, list(Backend.Images)},
	{"DELETE", api.PathImages, short, func(c *call) (any, error) {
		name := c.r.URL.Query().Get("name")
		if err := checkName("name", name); err != nil {
			return nil, err
		}
		return done{}, c.RemoveImage(c.ctx, name)
	}},

	{"GET", api.PathOffloads, short, list(Backend.Offloads)},
	{"PUT", api.PathOffload, long, named("namespace", offload)},
	{"DELETE", api.PathOffload, long, named("namespace", func(c *call, namespace string) (any, error) {
		options, err := api.ParseUnoffloadOptions(c.r.URL.Query())
		if err != nil {
			return nil, err
		}
		return done{}, c.Unoffload(c.ctx, namespace, options, c.report)
	})},
	{"GET", api.PathGuests, short, list(Backend.Guests)},
	{"GET", api.PathVolumes, short, list(Backend.Volumes)},
	{"POST", api.PathMove, long, func(c *call) (any, error) {
		in, err := body[api.MoveOptions](c)
		if err == nil {
			err = in.Check()
		}
		if err != nil {
			return nil, err
		}
		return c.MoveVolume(c.ctx, in, c.report)
	}},
	{"GET", api.PathNotRunning, short, list(Backend.NotRunning)},
	{"GET", api.PathTop, short, list(Backend.Top)},
	{"GET", api.PathWhy, short, func(c *call) (any, error) {
		options, err := api.ParseWhyOptions(c.r.URL.Query())
		if err != nil {
			return nil, err
		}
		return c.Why(c.ctx, options)
	}},
	{"GET", api.PathTether, short, func(c *call) (any, error) {
		peer := c.r.URL.Query().Get("peer")
		if err := checkName("peer", peer); err != nil {
			return nil, err
		}
		return c.CheckTether(c.ctx, peer, c.dry)
	}},
	{"POST", api.PathTether, long, tether},
	{"POST", api.PathUntether, long, untether},
	{"GET", api.PathDoctor, long, func(c *call) (any, error) {
		peer := c.r.URL.Query().Get("peer")
		if peer != "" {
			if err := checkName("peer", peer); err != nil {
				return nil, err
			}
		}
		findings, err := c.Doctor(c.ctx, peer, c.report)
		return api.List[api.Finding](findings), err
	}},
	{"POST", api.PathDoctorFix, long, func(c *call) (any, error) {
		in, err := body[api.DoctorFix](c)
		if err == nil {
			err = in.Check()
		}
		if err != nil {
			return nil, err
		}
		fixed, err := c.FixFindings(c.ctx, in, c.report)
		return api.List[api.Fixed](fixed), err
	}},
}

// drily are the routes that can say what they would do, without doing it. The others refuse to be asked so.
var drily = map[string]bool{
	"DELETE " + api.PathPeer: true, "POST " + api.PathEnd: true, "PATCH " + api.PathPolicy: true, "POST " + api.PathUndo: true,
	"DELETE " + api.PathOffload: true, "GET " + api.PathTether: true,
}

// plain is a route that asks for one thing.
func plain[T any](ask func(Backend, context.Context) (T, error)) func(*call) (any, error) {
	return func(c *call) (any, error) { return ask(c.Backend, c.ctx) }
}

// list is a route that lists all there are; nil is the empty list, for JSON.
func list[T any](ask func(Backend, context.Context) ([]T, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		items, err := ask(c.Backend, c.ctx)
		return api.List[T](items), err
	}
}

// named is a route about the thing that the part of the path in braces names.
func named(key string, answer func(c *call, name string) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		name := c.r.PathValue(key)
		if err := checkName(key, name); err != nil {
			return nil, err
		}
		return answer(c, name)
	}
}

// about is named for what needs the name alone.
func about[T any](key string, ask func(Backend, context.Context, string) (T, error)) func(*call) (any, error) {
	return named(key, func(c *call, name string) (any, error) { return ask(c.Backend, c.ctx, name) })
}

func kubeconfig(c *call) (any, error) {
	direct := false
	if text := c.r.URL.Query().Get("direct"); text != "" {
		var err error
		if direct, err = strconv.ParseBool(text); err != nil {
			return nil, api.Invalid("direct", text, "true or false")
		}
	}
	if direct {
		b, err := c.DirectKubeconfig(c.ctx)
		return file{"application/yaml", b}, err
	}
	b, err := c.Kubeconfig(c.ctx, c.r.Context().Value(callerKey{}).(*caller).uid)
	return file{"application/yaml", b}, err
}

func addPeer(c *call) (any, error) {
	in, err := body[api.AddPeer](c)
	if err == nil {
		err = checkName("address", in.Address)
	}
	if err == nil && in.From != "" {
		err = checkName("from", in.From)
	}
	if err != nil {
		return nil, err
	}
	return c.AddPeer(c.ctx, in)
}

func ask(c *call, peer string) (any, error) {
	in, err := body[api.PeerAsk](c)
	if err == nil {
		err = api.CheckAsked("resources", in.Resources)
	}
	if err == nil {
		in.Code, err = api.ParseCode("code", in.Code)
	}
	if err != nil {
		return nil, err
	}
	return c.Ask(c.ctx, peer, in, c.report)
}

func accept(c *call, id string) (any, error) {
	in, err := body[api.Accept](c)
	if err == nil {
		err = api.CheckResources("granted", in.Granted, false)
	}
	if err != nil {
		return nil, err
	}
	return c.Accept(c.ctx, id, in.Granted)
}

func confirm(c *call, peer string) (any, error) {
	in, err := body[api.PeerConfirm](c)
	if err == nil {
		in.Code, err = api.ParseCode("code", in.Code)
	}
	if err != nil {
		return nil, err
	}
	return c.Confirm(c.ctx, peer, in)
}

func setPolicy(c *call, name string) (any, error) {
	in, err := body[api.PolicyChange](c)
	if err == nil {
		// The change alone must be well formed; what it does to the policy there is, is the backend's to check.
		err = in.Apply(api.Policy{}).Check()
	}
	if err != nil {
		return nil, err
	}
	return c.SetPolicy(c.ctx, name, in, c.dry)
}

func offload(c *call, namespace string) (any, error) {
	in, err := body[api.OffloadOptions](c)
	if err == nil {
		err = in.Check()
	}
	if err != nil {
		return nil, err
	}
	return c.Offload(c.ctx, namespace, in, c.report)
}

func tether(c *call) (any, error) {
	in, err := body[api.TetherOptions](c)
	if err == nil {
		err = checkName("peer", in.Peer)
	}
	if err == nil {
		err = in.Check()
	}
	if err == nil {
		in.Code, err = api.ParseCode("code", in.Code)
	}
	if err != nil {
		return nil, err
	}
	return c.Tether(c.ctx, in, c.report)
}

func untether(c *call) (any, error) {
	in, err := body[api.UntetherOptions](c)
	if err == nil {
		err = in.Check()
	}
	if err != nil {
		return nil, err
	}
	return c.Untether(c.ctx, in, c.report)
}
