// SPDX-License-Identifier: BSD-3-Clause
// Files that a peer reads and writes by their offsets, with stock calls of UCP.
#include "ucp_face.h"

#include "../harness/paging.h"

#include <nprdma/nprdma_file_ucp.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

using namespace nt;

namespace {

constexpr unsigned READ = NPRDMA_FILE_READ;
constexpr unsigned BOTH = NPRDMA_FILE_READ | NPRDMA_FILE_WRITE;
constexpr size_t MAX    = 64 << 20;

struct Part {
    uint64_t offset, length;
};

// A file that has no name any more; "" is a memfd.
int open_file(const std::string &directory, size_t size)
{
    std::string path = directory + "/nprdma-test-XXXXXX";
    int fd           = directory.empty() ?
                       memfd_create("nprdma-test", MFD_CLOEXEC) :
                       mkstemp(&path[0]);

    if (fd < 0) {
        throw Failed("no file in '" + directory + "'");
    }
    if (!directory.empty()) {
        unlink(path.c_str());
    }
    EXPECT_EQ(0, ftruncate(fd, size));
    return fd;
}

// A file of this process, and what peers are told of its keys.
class Export {
public:
    Export(UcpNode &node, const std::string &directory, size_t size,
           unsigned rights = BOTH)
        : m_node(node), fd(open_file(directory, size))
    {
        EXPECT_EQ(0, nprdma_file_create(MAX, &file));
        EXPECT_EQ(0, nprdma_file_bind(file, fd, rights));
    }

    ~Export()
    {
        nprdma_file_destroy(file);
        close(fd);
    }

    Export(const Export&) = delete;

    nprdma_filekey_t key(unsigned rights = BOTH)
    {
        nprdma_filekey_t key;

        EXPECT_EQ(0, nprdma_file_key(file, rights, &key));
        return key;
    }

    // As UcpMem::describe; addresses begin at 0
    std::string describe(const nprdma_filekey_t &key)
    {
        std::string text(sizeof(uint64_t), '\0');
        void *packed;
        size_t size;

        check(nprdma_file_pack_key(m_node.context, &key, &packed, &size),
              "nprdma_file_pack_key");
        text.append(static_cast<char*>(packed), size);
        ucp_rkey_buffer_release(packed);
        return text;
    }

    std::vector<uint8_t> content(size_t offset, size_t length)
    {
        std::vector<uint8_t> bytes(length);

        EXPECT_EQ(ssize_t(length), pread(fd, bytes.data(), length, offset));
        return bytes;
    }

private:
    UcpNode &m_node;

public:
    int           fd;
    nprdma_file_t *file = nullptr;
};

// The target has a file, the initiator keys of it.
class Remote {
public:
    Remote(UcpNode &node, const std::string &text)
        : m_node(node), m_remote(node.ep, text)
    {
    }

    ucs_status_t put(const void *data, size_t length, uint64_t offset)
    {
        ucs_status_t status = m_node.wait(
                ucp_put_nbx(m_node.ep, data, length, offset, m_remote.rkey,
                            &no_params()), "put");

        return (status == UCS_OK) ?
               m_node.wait(ucp_ep_flush_nbx(m_node.ep, &no_params()), "flush") :
               status;
    }

    ucs_status_t get(void *data, size_t length, uint64_t offset)
    {
        return m_node.wait(ucp_get_nbx(m_node.ep, data, length, offset,
                                       m_remote.rkey, &no_params()), "get");
    }

    ucs_status_t add(uint64_t value, uint64_t offset, uint64_t *old)
    {
        ucp_request_param_t params = {};

        params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE |
                              UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        params.datatype     = ucp_dt_make_contig(8);
        params.reply_buffer = old;
        return m_node.wait(ucp_atomic_op_nbx(m_node.ep, UCP_ATOMIC_OP_ADD,
                                             &value, 1, offset, m_remote.rkey,
                                             &params), "atomic");
    }

private:
    UcpNode   &m_node;
    UcpRemote m_remote;
};

// Where files are, and the scope of registrations
using FileParam = std::tuple<std::string, const char*>;

class File : public testing::TestWithParam<FileParam> {
protected:
    static std::string directory() { return std::get<0>(GetParam()); }

    static void run(const std::function<void(UcpNode&)> &body)
    {
        run(false, body);
    }

    static void run(bool peer_errors,
                    const std::function<void(UcpNode&)> &body)
    {
        const char *scope = std::get<1>(GetParam());

        run_ranks([=](Rank &rank) {
            if (!is_nprdma()) {
                throw Skipped("files are reached by nprdma alone");
            }
            setenv("UCX_NPRDMA_MR_SCOPE", scope, 1);

            UcpOptions options = {UCP_FEATURE_RMA | UCP_FEATURE_AMO64};

            options.peer_errors = peer_errors;
            UcpNode node(rank, options);

            body(node);
            if (node.errors == 0) {
                node.sync();
            }
        });
    }

    // A put that is buffered and refused is the endpoint's end, as it is of a
    // reliable queue pair: nobody waits for the other one's.
    static void part(UcpNode &node)
    {
        node.sync();
        if (node.errors == 0) {
            node.errors = 1;
        }
    }

    // The target's end of what both do: it makes and keeps the file
    static std::unique_ptr<Export> share(UcpNode &node, size_t size)
    {
        return node.rank.target() ?
               std::make_unique<Export>(node, directory(), size) : nullptr;
    }

    static std::string tell(UcpNode &node, Export *mine, unsigned rights)
    {
        return node.rank.oob.exchange(
                (mine == nullptr) ? "" : mine->describe(mine->key(rights)));
    }
};

TEST_P(File, EverySizeByOffset)
{
    run([](UcpNode &node) {
        const size_t size           = 8 << 20;
        std::unique_ptr<Export> mine = share(node, size);
        std::string text            = tell(node, mine.get(), BOTH);
        std::vector<uint8_t> local(size);
        uint64_t seed = 0;

        if (node.rank.initiator()) {
            Remote remote(node, text);

            for (size_t length : sizes_around(4 << 20)) {
                uint64_t offset = (++seed * 991) % (size - length + 1);

                pattern_fill(local.data(), length, seed);
                ASSERT_EQ(UCS_OK, remote.put(local.data(), length, offset));
                memset(local.data(), 0, length);
                ASSERT_EQ(UCS_OK, remote.get(local.data(), length, offset));
                ASSERT_EQ("", pattern_diff(local.data(), length, seed))
                        << length;
                node.rank.oob.exchange_value(Part{offset, length});
                node.sync();
            }
            node.rank.oob.exchange_value(Part{0, ~0ul});
        } else {
            for (;;) {
                auto [offset, length] = node.rank.oob.exchange_value(Part{});

                if (length == ~0ul) {
                    break;
                }
                auto bytes = mine->content(offset, length);

                ASSERT_EQ("", pattern_diff(bytes.data(), length, ++seed))
                        << length;
                node.sync();
            }
        }
        node.sync();
    });
}

// What the owner writes by system calls a peer reads, and the other way round.
TEST_P(File, IsTheFile)
{
    run([](UcpNode &node) {
        std::unique_ptr<Export> mine = share(node, 1 << 20);
        std::string text = tell(node, mine.get(), BOTH);
        std::unique_ptr<Remote> remote;

        if (node.rank.initiator()) {
            remote.reset(new Remote(node, text));
        }
        for (uint64_t i = 0, word = 0, old = 0; i < 100; ++i) {
            uint64_t offset = (i * 10007) % ((1 << 20) - 8);

            if (node.rank.target()) {
                word = i * 3;
                ASSERT_EQ(8, pwrite(mine->fd, &word, 8, offset));
            }
            node.sync();
            if (node.rank.initiator()) {
                ASSERT_EQ(UCS_OK, remote->get(&word, 8, offset));
                EXPECT_EQ(i * 3, word);
                word = i * 5;
                ASSERT_EQ(UCS_OK, remote->put(&word, 8, offset));
                ASSERT_EQ(UCS_OK, remote->put(&word, 8, offset & ~7ul));
                ASSERT_EQ(UCS_OK, remote->add(7, offset & ~7ul, &old));
                EXPECT_EQ(i * 5, old);
            }
            node.sync();
            if (node.rank.target()) {
                ASSERT_EQ(8, pread(mine->fd, &word, 8, offset & ~7ul));
                EXPECT_EQ((i * 5) + 7, word);
            }
        }
        node.sync();
    });
}

// Small ones and large ones, that a part or all of is beyond the end.
TEST_P(File, EndIsToTheByte)
{
    run([](UcpNode &node) {
        const size_t size            = (2 << 20) + 1234;
        std::unique_ptr<Export> mine = share(node, size);
        std::string text             = tell(node, mine.get(), BOTH);

        if (node.rank.initiator()) {
            Remote remote(node, text);
            std::vector<uint8_t> local(1 << 20, 0xaa);
            uint64_t old;

            for (size_t length : {1, 8, 64, 1000, 4096, 65536, 1 << 20}) {
                for (int touched = 0; touched < 2; ++touched) {
                    EXPECT_EQ(UCS_OK, remote.get(local.data(), length,
                                                 size - length));
                    EXPECT_NE(UCS_OK, remote.get(local.data(), length,
                                                 size - length + 1)) << length;
                    EXPECT_NE(UCS_OK, remote.get(local.data(), length, size));
                    EXPECT_NE(UCS_OK, remote.get(local.data(), length,
                                                 MAX - length));
                    EXPECT_NE(UCS_OK, remote.get(local.data(), length,
                                                 MAX - length + 1));
                }
                EXPECT_EQ(UCS_OK, remote.put(local.data(), length,
                                             size - length));
            }
            EXPECT_NE(UCS_OK, remote.add(1, (size | 7) + 1, &old));
        }
        node.sync();
        if (node.rank.target()) {
            struct stat st;

            EXPECT_EQ(0, fstat(mine->fd, &st));
            EXPECT_EQ(off_t(size), st.st_size);
        }
        node.sync();
    });
}

// A put that is refused writes nothing of what is there.
TEST_P(File, PutBeyondTheEnd)
{
    for (size_t length : {8, 1000, 4096, 1 << 20}) {
        run([=](UcpNode &node) {
            const size_t size            = (2 << 20) + 100;
            std::unique_ptr<Export> mine = share(node, size);
            std::string text             = tell(node, mine.get(), BOTH);

            if (node.rank.initiator()) {
                Remote remote(node, text);
                std::vector<uint8_t> local(length, 0xaa);

                EXPECT_EQ(UCS_OK, remote.get(local.data(), 1, size - 1));
                EXPECT_NE(UCS_OK, remote.put(local.data(), length, size - 4));
            }
            node.sync();
            if (node.rank.target()) {
                auto bytes = mine->content(size - 4, 4);

                EXPECT_EQ(std::vector<uint8_t>(4, 0), bytes);
            }
            part(node);
        });
    }
}

TEST_P(File, GrowsAndShrinks)
{
    run([](UcpNode &node) {
        const size_t page            = 4096;
        std::unique_ptr<Export> mine = share(node, 0);
        std::string text             = tell(node, mine.get(), BOTH);
        std::unique_ptr<Remote> remote;
        std::vector<uint8_t> local(100 * page);

        if (node.rank.initiator()) {
            remote.reset(new Remote(node, text));
            EXPECT_NE(UCS_OK, remote->get(local.data(), 1, 0));
        }
        for (size_t size : {100ul, 4096ul, 5000ul, 40 * page, 7 * page + 9,
                            1ul, 0ul, 90 * page}) {
            // by its owner; then it grows, and is cut, by others
            for (int by_others = 0; by_others < 3; ++by_others) {
                const size_t more = (by_others == 1) ? page : 0;

                node.sync();
                if (node.rank.target()) {
                    if (by_others) {
                        EXPECT_EQ(0, ftruncate(mine->fd, size + more));
                    } else {
                        EXPECT_EQ(0, nprdma_file_resize(mine->file, size));
                    }
                }
                node.sync();
                if (node.rank.initiator()) {
                    size_t now = size + more;

                    // with the first that is refused a cut by others is seen
                    EXPECT_NE(UCS_OK, remote->get(local.data(), 1, now + page));
                    EXPECT_NE(UCS_OK, remote->get(local.data(), now + 1, 0));
                    EXPECT_NE(UCS_OK, remote->get(local.data(), 1, now));
                    EXPECT_NE(UCS_OK, remote->get(local.data(), 2, now - 1));
                    if (now > 0) {
                        EXPECT_EQ(UCS_OK, remote->get(local.data(), now, 0));
                        EXPECT_EQ(UCS_OK, remote->put(local.data(), now, 0));
                        EXPECT_EQ(UCS_OK, remote->put("x", 1, now - 1));
                    }
                }
            }
        }
        node.sync();
        if (node.rank.target()) {
            EXPECT_EQ(-EFBIG, nprdma_file_resize(mine->file, MAX + 1));
            EXPECT_EQ(0, nprdma_file_commit(mine->file));
        }
    });
}

TEST_P(File, RightsOfKeys)
{
    run([](UcpNode &node) {
        std::unique_ptr<Export> mine = share(node, 1 << 20);
        std::string both = tell(node, mine.get(), BOTH);
        std::string read = tell(node, mine.get(), READ);

        if (node.rank.initiator()) {
            Remote reader(node, read);
            std::vector<uint8_t> local(1 << 20);
            uint64_t old;

            EXPECT_EQ(UCS_OK, reader.get(local.data(), 1 << 20, 0));
            EXPECT_NE(UCS_OK, reader.put(local.data(), 1 << 19, 0));
            EXPECT_NE(UCS_OK, reader.add(1, 64, &old));

            Remote writer(node, both);

            EXPECT_EQ(UCS_OK, writer.put("abcdefgh", 8, 4096 + 5));
            EXPECT_EQ(UCS_OK, reader.get(local.data(), 8, 4096 + 5));
            EXPECT_EQ(0, memcmp(local.data(), "abcdefgh", 8));
        }
        node.sync();
        if (node.rank.target()) {
            nprdma_filekey_t key;

            Export readable(node, directory(), 4096, READ);
            EXPECT_EQ(-EACCES, nprdma_file_key(readable.file, BOTH, &key));
            EXPECT_EQ(nullptr, key.address);
            EXPECT_EQ(-EACCES, nprdma_file_resize(readable.file, 8192));
        }
        node.sync();
    });
}

// A small put by a key that does not allow it, in a run of its own: the error
// may be the endpoint's end.
TEST_P(File, SmallPutWithoutTheRight)
{
    run([](UcpNode &node) {
        std::unique_ptr<Export> mine = share(node, 1 << 20);
        std::string read = tell(node, mine.get(), READ);

        if (node.rank.initiator()) {
            Remote reader(node, read);
            uint64_t word = 0;

            EXPECT_EQ(UCS_OK, reader.get(&word, 8, 8));
            word = 5;
            EXPECT_NE(UCS_OK, reader.put(&word, 8, 8));
        }
        node.sync();
        if (node.rank.target()) {
            EXPECT_EQ(std::vector<uint8_t>(8, 0), mine->content(8, 8));
        }
        part(node);
    });
}

// While a peer reads and writes; what it does afterwards changes nothing.
TEST_P(File, RevokedWhileInUse)
{
    run([](UcpNode &node) {
        const size_t size            = 1 << 20;
        std::unique_ptr<Export> mine = share(node, size);
        nprdma_filekey_t key         = {}, other = {};
        std::string text, kept;

        if (mine) {
            key   = mine->key();
            other = mine->key();
        }
        text = node.rank.oob.exchange(mine ? mine->describe(key) : "");
        kept = node.rank.oob.exchange(mine ? mine->describe(other) : "");
        if (node.rank.initiator()) {
            Remote remote(node, text), good(node, kept);
            std::vector<uint8_t> local(262144, 1);
            size_t done = 0;

            // large puts are not buffered: their refusal is theirs alone
            for (;;) {
                size_t at = (done * 4099) % (size - local.size());

                if (((done % 2) ? remote.put(local.data(), local.size(), at) :
                                  remote.get(local.data(), local.size(), at)) !=
                    UCS_OK) {
                    break;
                }
                if (++done == 100) {
                    node.rank.oob.send("go");
                }
            }
            EXPECT_GE(done, 100u);
            EXPECT_EQ("revoked", node.rank.oob.recv());
            memset(local.data(), 0x55, local.size());
            EXPECT_NE(UCS_OK, remote.put(local.data(), local.size(), 0));
            EXPECT_NE(UCS_OK, remote.get(local.data(), local.size(), 0));
            EXPECT_EQ(UCS_OK, good.get(local.data(), local.size(), 0));
            EXPECT_EQ(0, local[0]);
        } else {
            EXPECT_EQ("go", node.rank.oob.recv());
            EXPECT_EQ(0, nprdma_file_revoke(mine->file, &key));
            // what is there now stays
            std::vector<uint8_t> zeroes(size);

            EXPECT_EQ(ssize_t(size), pwrite(mine->fd, zeroes.data(), size, 0));
            usleep(20000);
            EXPECT_EQ(zeroes, mine->content(0, size));
            EXPECT_EQ(-ENOENT, nprdma_file_revoke(mine->file, &key));
            node.rank.oob.send("revoked");
        }
        node.sync();
        if (mine) {
            EXPECT_EQ(0, nprdma_file_unbind(mine->file));
            EXPECT_EQ(-EBADF, nprdma_file_unbind(mine->file));
            EXPECT_EQ(-EBADF, nprdma_file_key(mine->file, READ, &key));
            EXPECT_EQ(-EBADF, nprdma_file_commit(mine->file));
            EXPECT_EQ(-EBADF, nprdma_file_resize(mine->file, 1));
            EXPECT_EQ(0, nprdma_file_bind(mine->file, mine->fd, READ));
        }
    });
}

// Endpoints that are to survive their peer. In UCX 1.16 to 1.18, and later with
// arena scope, UCP has its own way for their gets: it asks the target's UCP,
// which takes an offset for an address.
TEST_P(File, WithErrorHandling)
{
    if (ucx_has(16) && (!ucx_has(19) ||
                        (std::string("arena") == std::get<1>(GetParam())))) {
        GTEST_SKIP() << "UCX 1.16 to 1.18 emulate gets for such endpoints, and "
                        "later ones with arena scope";
    }
    run(true, [](UcpNode &node) {
        std::unique_ptr<Export> mine = share(node, 1 << 20);
        std::string text             = tell(node, mine.get(), BOTH);

        if (node.rank.initiator()) {
            Remote remote(node, text);
            std::vector<uint8_t> local(1 << 20);

            for (size_t length : {8, 1000, 100000, 1 << 20}) {
                pattern_fill(local.data(), length, length);
                EXPECT_EQ(UCS_OK, remote.put(local.data(), length, 0));
                memset(local.data(), 0, length);
                EXPECT_EQ(UCS_OK, remote.get(local.data(), length, 0));
                EXPECT_EQ("", pattern_diff(local.data(), length, length));
            }
        }
        node.sync();
    });
}

// The file's size goes up and down while a peer reads and writes all of it:
// each access is right, or an error, and nobody gets a signal.
TEST_P(File, CutWhileInUse)
{
    run([](UcpNode &node) {
        const size_t page = 4096, most = 256 * page, least = 99 * page + 77;
        std::unique_ptr<Export> mine = share(node, most);
        std::string text             = tell(node, mine.get(), BOTH);

        if (node.rank.initiator()) {
            Remote remote(node, text);
            std::vector<uint8_t> local(most);
            size_t good = 0, refused = 0;
            double end = now() + 1;

            for (uint64_t i = 1; now() < end; ++i) {
                // a large put is not buffered
                size_t length   = 1 + ((i * 7919) % (8 * page)) +
                                  ((i % 2) ? 32 * page : 0);
                uint64_t offset = (i * 10007) % (most - length), old;
                ucs_status_t status;

                if (i % 7 == 0) {
                    status = remote.add(0, offset & ~7ul, &old);
                } else if (i % 2) {
                    memset(local.data(), 0, length);
                    status = remote.put(local.data(), length, offset);
                } else {
                    memset(local.data(), 1, length);
                    status = remote.get(local.data(), length, offset);
                    if (status == UCS_OK) {
                        ASSERT_EQ(nullptr, memchr(local.data(), 1, length));
                    }
                }
                ++((status == UCS_OK) ? good : refused);
                if ((offset + length) <= least) {
                    ASSERT_EQ(UCS_OK, status) << offset << " " << length;
                }
            }
            EXPECT_GT(good, 10u);
            EXPECT_GT(refused, 10u);
            node.rank.oob.send("over");
            node.sync();
        } else {
            std::atomic<bool> is_over(false);
            std::thread cutter([&]() {
                for (int i = 0; !is_over; ++i) {
                    size_t size = (i % 2) ? most : least;

                    if (i % 3) {
                        EXPECT_EQ(0, nprdma_file_resize(mine->file, size));
                    } else {
                        EXPECT_EQ(0, ftruncate(mine->fd, size));
                    }
                    usleep(200);
                }
            });

            EXPECT_EQ("over", node.rank.oob.recv());
            is_over = true;
            cutter.join();
            node.sync();
        }
    });
}

// Nothing is pinned or brought in by the export of a large file
TEST_P(File, LargeCostsNothing)
{
    run([](UcpNode &node) {
        if (node.rank.target()) {
            const uint64_t size = 1ull << 36;
            nprdma_filekey_t key;
            nprdma_file_t *file;
            struct stat st;
            int fd = open_file(directory(), 0);

            if (ftruncate(fd, size) != 0) {
                close(fd);
                throw Skipped("the file system has no files of 64 GiB");
            }
            ASSERT_EQ(0, nprdma_file_create(size, &file));
            ASSERT_EQ(0, nprdma_file_bind(file, fd, BOTH));
            ASSERT_EQ(0, nprdma_file_key(file, BOTH, &key));
            ASSERT_EQ(size, key.length);
            ASSERT_EQ(0, fstat(fd, &st));
            EXPECT_EQ(0, st.st_blocks);
            nprdma_file_destroy(file);
            close(fd);
        }
        node.sync();
    });
}

TEST_P(File, MistakesAreErrors)
{
    run([](UcpNode &node) {
        if (node.rank.target()) {
            int fd = open_file(directory(), 8192), pipes[2], copy;
            nprdma_filekey_t key;
            nprdma_file_t *file;

            EXPECT_EQ(-EINVAL, nprdma_file_create(0, &file));
            EXPECT_EQ(nullptr, file);
            EXPECT_EQ(-EINVAL, nprdma_file_create(1ull << 50, &file));
            EXPECT_EQ(-EINVAL, nprdma_file_create(4096, nullptr));
            ASSERT_EQ(0, nprdma_file_create(4096, &file));
            EXPECT_EQ(-EFBIG, nprdma_file_bind(file, fd, BOTH));
            EXPECT_EQ(0, ftruncate(fd, 4096));
            EXPECT_EQ(-EINVAL, nprdma_file_bind(file, fd, 0));
            EXPECT_EQ(-EINVAL, nprdma_file_bind(file, fd, NPRDMA_FILE_WRITE));
            EXPECT_EQ(-EBADF, nprdma_file_bind(file, -1, READ));
            ASSERT_EQ(0, pipe(pipes));
            EXPECT_EQ(-EINVAL, nprdma_file_bind(file, pipes[0], READ));
            copy = open(("/proc/self/fd/" + std::to_string(fd)).c_str(),
                        O_RDONLY);
            if (copy >= 0) { // not every file system opens what has no name
                EXPECT_EQ(-EACCES, nprdma_file_bind(file, copy, BOTH));
                close(copy);
            }
            EXPECT_EQ(-EBADF, nprdma_file_key(file, READ, &key));
            EXPECT_EQ(0, nprdma_file_bind(file, fd, BOTH));
            EXPECT_EQ(-EBUSY, nprdma_file_bind(file, fd, BOTH));
            EXPECT_EQ(-EINVAL, nprdma_file_key(file, 8, &key));
            EXPECT_EQ(-EINVAL, nprdma_file_key(file, READ, nullptr));
            EXPECT_EQ(-EINVAL, nprdma_file_key(nullptr, READ, &key));
            nprdma_file_destroy(nullptr);
            nprdma_file_destroy(file);
            close(fd);
            close(pipes[0]);
            close(pipes[1]);
        }
        node.sync();
    });
}

std::string file_name(const testing::TestParamInfo<FileParam> &info)
{
    const std::string &directory = std::get<0>(info.param);

    return (directory.empty() ? std::string("Memfd") :
            (directory == ".") ? "Here" : "Tmpfs") + "_" +
           std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(Files, File,
                         testing::Combine(testing::Values("", "/dev/shm", "."),
                                          testing::Values("arena", "exact")),
                         file_name);

} // namespace
